//! HTTP/1.1, byte by byte.

use std::fmt::Write as _;
use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::answer::{Answer, Asked, decide};
use super::{Act, Shared};

pub async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(asked) = read(&mut stream, &mut buffer).await? {
        let (act, answer) = decide(shared, &asked);
        let mut written = written(&answer);
        let mut size = usize::MAX;
        match act {
            Act::Right | Act::Response(_) | Act::Raw(_) => {}
            Act::Pieces(bytes) => size = bytes,
            Act::Chunks(bytes) => written = chunked(&answer, bytes),
            Act::Continued => stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?,
            Act::At(time) => tokio::time::sleep_until(time.into()).await,
            Act::Behind(gate) => gate.pass().await,
            Act::Last => return stream.write_all(&written).await,
            Act::Close => return Ok(()),
            Act::Truncated => {
                return stream.write_all(&written[..written.len() - answer.body.len() / 2 - 1]).await;
            }
            Act::Reset => return stream.set_zero_linger(),
            Act::Never => std::future::pending().await,
        }
        for piece in written.chunks(size) {
            stream.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

fn head(answer: &Answer, length: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} Whatever\r\n{length}\r\n", answer.status);
    for (name, value) in &answer.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

fn written(answer: &Answer) -> Vec<u8> {
    let mut written = head(answer, &format!("content-length: {}", answer.body.len()));
    written.extend_from_slice(&answer.body);
    written
}

fn chunked(answer: &Answer, size: usize) -> Vec<u8> {
    let mut written = head(answer, "transfer-encoding: chunked");
    for chunk in answer.body.chunks(size) {
        written.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        written.extend_from_slice(chunk);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(b"0\r\n\r\n");
    written
}

/// The next request; none when the client has closed.
async fn read(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Asked>> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    buffer.advance(end);
    let length = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(':'))
            .find_map(|(found, value)| (found == name).then(|| value.trim().parse::<usize>().unwrap()))
    };
    let size = length("content-length").unwrap_or(0);
    while buffer.len() < size {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(Asked {
        path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
        json_length: length("inference-header-content-length"),
        body: buffer.split_to(size).freeze(),
    }))
}
