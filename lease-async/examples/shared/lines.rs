//! Lines of clients who may send anything.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// The longest line.
const LINE: u64 = 64 << 10;

/// Reads a line. One that is too long, or no text, is an error, and nobody knows where the next one begins.
pub(crate) async fn line(read: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    read.take(LINE).read_until(b'\n', &mut line).await?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line).map(Some).map_err(io::Error::other),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
