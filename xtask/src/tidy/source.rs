//! Rust source, split into code and comments without parsing it.

/// One Rust file. Both texts have the lines and columns of the file.
#[derive(Debug)]
pub(super) struct Source {
    /// The code, with comments and the insides of literals blanked.
    pub(super) code: Vec<String>,
    /// The comments, with everything else blanked.
    pub(super) comments: Vec<String>,
}

/// What the reader is in the middle of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Inside {
    Code,
    LineComment,
    /// With its depth, as they nest.
    BlockComment(u32),
    Text,
    /// With the number of `#` that end it.
    RawText(usize),
    Character,
}

/// Where a character belongs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Code,
    Comment,
    Neither,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut splitter = Splitter::default();
        let mut rest = characters.as_slice();
        while !rest.is_empty() {
            let taken = splitter.step(rest);
            rest = rest.get(taken..).unwrap_or_default();
        }
        Self {
            code: splitter.code.lines().map(str::to_owned).collect(),
            comments: splitter.comments.lines().map(str::to_owned).collect(),
        }
    }

    /// The code of a line that counts from 1; empty beyond the end.
    pub(super) fn code(&self, line: usize) -> &str {
        at(&self.code, line)
    }

    /// The comment of a line that counts from 1; empty beyond the end.
    pub(super) fn comment(&self, line: usize) -> &str {
        at(&self.comments, line)
    }

    /// The lines of code with their numbers, counted from 1.
    pub(super) fn numbered_code(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.iter().map(String::as_str))
    }

    /// The line from which on this is test code, if any is.
    ///
    /// A test module inside a file is the last thing in it, by the house's order of code.
    pub(super) fn test_code_from(&self, path: &str) -> Option<usize> {
        let whole = ["/tests/", "/tests.rs", "/src/conformance"];
        if whole.iter().any(|part| path.contains(part)) {
            return Some(1);
        }
        let find = |words: &str| {
            let mut lines = self.numbered_code();
            lines.find_map(|(line, code)| code.contains(words).then_some(line))
        };
        let inline = |line: &usize| {
            let following = self.code(line.saturating_add(1));
            following.trim_start().starts_with("mod ") && following.contains('{')
        };
        match find("#[cfg(test)]") {
            Some(line) => Some(line).filter(inline),
            None => find("#[test]").map(|_| 1),
        }
    }
}

fn at(lines: &[String], line: usize) -> &str {
    line.checked_sub(1)
        .and_then(|index| lines.get(index))
        .map(String::as_str)
        .unwrap_or_default()
}

#[derive(Debug)]
struct Splitter {
    inside: Inside,
    code: String,
    comments: String,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            inside: Inside::Code,
            code: String::new(),
            comments: String::new(),
        }
    }
}

impl Splitter {
    /// Takes the next characters and says how many.
    fn step(&mut self, rest: &[char]) -> usize {
        match self.inside {
            Inside::Code => self.code(rest),
            Inside::LineComment => self.line_comment(rest),
            Inside::BlockComment(depth) => self.block_comment(rest, depth),
            Inside::Text => self.literal(rest, '"'),
            Inside::Character => self.literal(rest, '\''),
            Inside::RawText(hashes) => self.raw_text(rest, hashes),
        }
    }

    fn code(&mut self, rest: &[char]) -> usize {
        match rest {
            ['/', '/', ..] => self.enter(Inside::LineComment, rest, 2, Side::Comment),
            ['/', '*', ..] => self.enter(Inside::BlockComment(1), rest, 2, Side::Comment),
            ['"', ..] => self.enter(Inside::Text, rest, 1, Side::Code),
            // A lifetime has no closing quote after one character.
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => {
                self.enter(Inside::Character, rest, 1, Side::Code)
            }
            // No name may end directly before a quote, so this `r` is a prefix or the end of one.
            ['r', tail @ ..] => match raw_opening(tail) {
                Some(hashes) => {
                    let length = hashes.saturating_add(2);
                    self.enter(Inside::RawText(hashes), rest, length, Side::Code)
                }
                None => self.take(rest, 1, Side::Code),
            },
            _ => self.take(rest, 1, Side::Code),
        }
    }

    fn line_comment(&mut self, rest: &[char]) -> usize {
        if rest.first() == Some(&'\n') {
            self.inside = Inside::Code;
        }
        self.take(rest, 1, Side::Comment)
    }

    fn block_comment(&mut self, rest: &[char], depth: u32) -> usize {
        match rest {
            ['/', '*', ..] => {
                let deeper = Inside::BlockComment(depth.saturating_add(1));
                self.enter(deeper, rest, 2, Side::Comment)
            }
            ['*', '/', ..] if depth > 1 => {
                let outer = Inside::BlockComment(depth.saturating_sub(1));
                self.enter(outer, rest, 2, Side::Comment)
            }
            ['*', '/', ..] => self.enter(Inside::Code, rest, 2, Side::Comment),
            _ => self.take(rest, 1, Side::Comment),
        }
    }

    fn literal(&mut self, rest: &[char], quote: char) -> usize {
        match rest {
            ['\\', _, ..] => self.take(rest, 2, Side::Neither),
            [first, ..] if *first == quote => self.enter(Inside::Code, rest, 1, Side::Code),
            _ => self.take(rest, 1, Side::Neither),
        }
    }

    fn raw_text(&mut self, rest: &[char], hashes: usize) -> usize {
        let length = hashes.saturating_add(1);
        let ends = rest
            .get(..length)
            .and_then(<[char]>::split_first)
            .is_some_and(|(quote, tail)| *quote == '"' && tail.iter().all(|next| *next == '#'));
        if ends {
            self.enter(Inside::Code, rest, length, Side::Code)
        } else {
            self.take(rest, 1, Side::Neither)
        }
    }

    fn enter(&mut self, inside: Inside, rest: &[char], length: usize, side: Side) -> usize {
        self.inside = inside;
        self.take(rest, length, side)
    }

    fn take(&mut self, rest: &[char], length: usize, side: Side) -> usize {
        for &character in rest.iter().take(length) {
            let blank = if character == '\n' { '\n' } else { ' ' };
            let (code, comment) = match side {
                Side::Code => (character, blank),
                Side::Comment => (blank, character),
                Side::Neither => (blank, blank),
            };
            self.code.push(code);
            self.comments.push(comment);
        }
        length
    }
}

/// The number of `#` in `#..#"`, which follows an `r`.
fn raw_opening(tail: &[char]) -> Option<usize> {
    let hashes = tail.iter().take_while(|next| **next == '#').count();
    (tail.get(hashes) == Some(&'"')).then_some(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str, comments: &str) {
        let source = Source::new(text);
        let trimmed = |lines: &[String]| {
            let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
            lines.join("\n")
        };
        assert_eq!(trimmed(&source.code), code);
        assert_eq!(trimmed(&source.comments), comments);
    }

    #[test]
    fn comments_are_no_code() {
        check("a // b\nc", "a\nc", "  // b\n");
        check(
            "a /* b /* c */ d */ e",
            "a                   e",
            "  /* b /* c */ d */",
        );
        check("/* a\nb */ c", "\n     c", "/* a\nb */");
    }

    #[test]
    fn literals_are_blanked() {
        check(r#"f("// a", 'b')"#, r#"f("    ", ' ')"#, "");
        check(r#"f("\"//", 'c')"#, r#"f("    ", ' ')"#, "");
        check(r"f('\'', '\\', x)", r"f('  ', '  ', x)", "");
        check("f(\"a\n// b\")", "f(\"\n    \")", "\n");
    }

    #[test]
    fn raw_text_ends_at_its_own_mark() {
        check(r###"f(r#"a" // b"#, c)"###, r###"f(r#"       "#, c)"###, "");
        check(
            r###"f(br"\", c) // d"###,
            r###"f(br" ", c)"###,
            "            // d",
        );
        check(r#"r#fn(r"x")"#, r#"r#fn(r" ")"#, "");
    }

    #[test]
    fn a_lifetime_is_no_character() {
        check(
            "fn f<'a>(x: &'a str) {} // c",
            "fn f<'a>(x: &'a str) {}",
            "                        // c",
        );
    }

    #[test]
    fn test_code_is_found_by_place_and_by_module() {
        let from = |path: &str, text: &str| Source::new(text).test_code_from(path);
        assert_eq!(from("a/tests/it/b.rs", "fn a() {}"), Some(1));
        assert_eq!(from("a/src/tests.rs", "fn a() {}"), Some(1));
        assert_eq!(from("chaos/src/conformance.rs", "fn a() {}"), Some(1));
        assert_eq!(
            from("a/src/b.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n}"),
            Some(2)
        );
        assert_eq!(
            from("a/src/b.rs", "fn a() {}\n#[cfg(test)]\nmod tests;"),
            None
        );
        assert_eq!(
            from("a/src/b_tests.rs", "use a;\n#[test]\nfn b() {}"),
            Some(1)
        );
        assert_eq!(from("a/src/b.rs", "fn a() {}"), None);
    }
}
