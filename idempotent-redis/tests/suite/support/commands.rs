//! Parsing of client commands, for fake servers.
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Reads a command, or returns `None` at the end of the stream.
pub(crate) async fn command(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn number(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}
