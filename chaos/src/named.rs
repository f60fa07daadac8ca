//! Enums whose variants have a name and a sentence, from one table.

/// Makes the enum, its names, its sentences and its `Display`, which is the name.
macro_rules! named {
    (
        $(#[$doc:meta])*
        $kind:ident {
            $($name:ident = $text:literal: $about:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $kind {
            $(#[doc = $about] $name,)*
        }

        impl $kind {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name: words joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns what must hold, in one sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;
