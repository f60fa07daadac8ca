//! Forms that serde needs.

/// A path: text where it is UTF-8, else its bytes.
pub(super) mod path {
    use std::ffi::OsString;
    #[cfg(unix)]
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::{Serialize as _, Serializer};

    use crate::holder::TargetPath;

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        #[cfg(unix)]
        Bytes {
            bytes: Vec<u8>,
        },
    }

    pub(in super::super) fn serialize<S: Serializer>(
        path: &TargetPath,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        let path = path.as_path();
        if let Some(text) = path.to_str() {
            return Form::Text(text.to_owned()).serialize(s);
        }
        #[cfg(unix)]
        return Form::Bytes {
            bytes: path.as_os_str().as_bytes().to_vec(),
        }
        .serialize(s);
        #[cfg(not(unix))]
        Err(serde::ser::Error::custom("path is not Unicode"))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<TargetPath, D::Error> {
        let path = match Form::deserialize(d)? {
            Form::Text(text) => OsString::from(text),
            #[cfg(unix)]
            Form::Bytes { bytes } => OsString::from_vec(bytes),
        };
        TargetPath::new(path).map_err(D::Error::custom)
    }
}
