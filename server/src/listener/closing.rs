//! Closes a listening socket without losing a connection.
//!
//! The kernel completes handshakes by itself, and resets those connections that were not accepted when the socket is closed.
//! Their clients have sent a request by then. So new handshakes are stopped first, and then what is left is accepted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// `BPF_LD | BPF_B | BPF_ABS`: loads the byte at an offset.
const LOAD_BYTE: u16 = 0x30;
/// `BPF_ALU | BPF_AND | BPF_K`.
const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`: how many bytes of the packet are kept.
const KEEP: u16 = 0x06;
/// Offset of the flags in a TCP header, where a socket's filter starts to read (RFC 9293, 3.1).
const FLAGS: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// How long handshakes that have begun may take. More would keep more clients that connect now from trying elsewhere.
const HANDSHAKES: Duration = Duration::from_millis(5);

/// Closes the socket, and gives to `take` the connections that arrived until then, at most `limit`. Handshakes that begin
/// now are not answered: their clients find the port closed when they try again, after a second.
pub async fn close(socket: TcpListener, limit: usize, take: impl FnMut(TcpStream, SocketAddr)) {
    let drops_handshakes = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(KEEP, 0, 0, 0),
        SockFilter::new(KEEP, 0, 0, u32::MAX),
    ];
    if let Err(error) = SockRef::from(&socket).attach_filter(&drops_handshakes) {
        tracing::warn!(%error, "the kernel filters no handshakes: connections that arrive in the last moment are reset");
    }
    if let Err(error) = accept_last(socket, limit, take).await {
        tracing::warn!(%error, "cannot accept the last connections: they are reset");
    }
}

async fn accept_last(
    socket: TcpListener,
    limit: usize,
    mut take: impl FnMut(TcpStream, SocketAddr),
) -> io::Result<()> {
    // Tokio asks the kernel only after it was told of a connection.
    let socket = socket.into_std()?;
    let taken = accept_waiting(&socket, limit, &mut take)?;
    tokio::time::sleep(HANDSHAKES).await;
    accept_waiting(&socket, limit - taken, &mut take)?;
    Ok(())
}

/// Accepts until no connection waits. Returns how many there were.
fn accept_waiting(
    socket: &std::net::TcpListener,
    limit: usize,
    take: &mut impl FnMut(TcpStream, SocketAddr),
) -> io::Result<usize> {
    let mut taken = 0;
    while taken < limit {
        let (stream, peer) = match socket.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // The client left before its connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        take(TcpStream::from_std(stream)?, peer);
        taken += 1;
    }
    Ok(taken)
}
