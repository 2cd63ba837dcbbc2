//! A socket that carries messages with file descriptors.
//!
//! `SOCK_SEQPACKET` preserves message boundaries: there are no partial messages, and files stay with their message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Upper bound on a message: enough for 256 tensors with long names, and less than a socket accepts at once.
pub(super) const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Upper bound on the files of a message.
const FILES_MAX: usize = 2;

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The other end is closed.
    #[error("the other end is closed")]
    Ended,
    /// No message arrived in time.
    #[error("no message in time")]
    Late,
    /// The bytes are not a message, or not the expected one.
    #[error("invalid message: {0}")]
    Invalid(String),
    /// The message exceeds the limit and was not sent.
    #[error("message too large: expected at most {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Files that were passed with a message.
pub(crate) struct Files(std::vec::IntoIter<OwnedFd>);

impl Files {
    /// The next file, if there is one.
    pub fn next(&mut self) -> Option<OwnedFd> {
        self.0.next()
    }

    /// The next file; `what` names it in the error.
    pub fn required(&mut self, what: &str) -> Result<OwnedFd, WireError> {
        self.next().ok_or_else(|| WireError::Invalid(format!("the {what} is missing")))
    }
}

/// One end of a conversation.
pub(crate) struct Socket {
    file: OwnedFd,
    /// Holds one message. The kernel allocates its pages when they are first used.
    buffer: Vec<u8>,
    /// The receive timeout that is set on the socket.
    timeout: Option<Duration>,
}

impl Socket {
    /// A pair of connected sockets; the second is for the other process.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::from(here), there))
    }

    /// A second handle of the same end.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::from(self.file.try_clone()?))
    }

    /// Sends a message with files. Blocks while the buffer of the other end is full.
    pub fn send<T: Serialize>(&mut self, message: &T, files: &[BorrowedFd<'_>]) -> Result<(), WireError> {
        let encoded = postcard::to_slice(message, &mut self.buffer).map_err(|_| WireError::TooLarge)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(WireError::TooLarge);
        }
        let parts = [IoSlice::new(encoded)];
        loop {
            match sendmsg(&self.file, &parts, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(WireError::Ended),
                Err(Errno::MSGSIZE) => return Err(WireError::TooLarge),
                Err(other) => return Err(WireError::System(other.into())),
            }
        }
    }

    /// Sends the last message of a conversation. A closed other end is not an error.
    pub fn answer<T: Serialize>(&mut self, message: &T) {
        match self.send(message, &[]) {
            Ok(()) | Err(WireError::Ended) => {}
            Err(error) => tracing::warn!(%error, "a worker's answer was not sent"),
        }
    }

    /// Waits for a message for at most `limit`, or forever without one.
    pub fn receive<T: DeserializeOwned>(&mut self, limit: Option<Duration>) -> Result<(T, Files), WireError> {
        let until = limit.map(|limit| Instant::now() + limit);
        self.set_timeout(limit)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut self.buffer)];
            match recvmsg(&self.file, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {
                    let Some(until) = until else { continue };
                    let rest = until.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        return Err(WireError::Late);
                    }
                    self.set_timeout(Some(rest))?;
                }
                Err(Errno::AGAIN) => return Err(WireError::Late),
                Err(Errno::CONNRESET) => return Err(WireError::Ended),
                Err(other) => return Err(WireError::System(other.into())),
            }
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                files.extend(passed);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(WireError::Invalid(format!("expected at most {MESSAGE_BYTES_MAX} bytes")));
        }
        if received.bytes == 0 {
            return Err(WireError::Ended);
        }
        let message = decode(self.buffer.get(..received.bytes).unwrap_or_default())?;
        Ok((message, Files(files.into_iter())))
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> Result<(), WireError> {
        if self.timeout != limit {
            set_socket_timeout(&self.file, Timeout::Recv, limit).map_err(io::Error::from)?;
            self.timeout = limit;
        }
        Ok(())
    }

    /// Stops sending and waits until the other end has closed, for at most `limit`. Messages that still arrive are
    /// ignored.
    pub fn close(&mut self, limit: Duration) -> Result<(), WireError> {
        let until = Instant::now() + limit;
        self.hang_up();
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(WireError::Late);
            }
            match self.receive::<serde::de::IgnoredAny>(Some(rest)) {
                Err(WireError::Ended) => return Ok(()),
                Ok(_) | Err(WireError::Invalid(_)) => {}
                Err(other) => return Err(other),
            }
        }
    }

    /// Stops sending: the other end sees the end of the conversation.
    pub fn hang_up(&self) {
        // Fails only if the other end is closed already.
        let _closed = shutdown(&self.file, Shutdown::Write);
    }
}

impl From<OwnedFd> for Socket {
    fn from(file: OwnedFd) -> Self {
        Self { file, buffer: vec![0; MESSAGE_BYTES_MAX], timeout: None }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The message that these bytes encode, all of them.
pub(super) fn decode<T: DeserializeOwned>(encoded: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(encoded) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(WireError::Invalid(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(WireError::Invalid(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn pair() -> (Socket, Socket) {
        let (here, there) = Socket::pair().unwrap();
        (here, Socket::from(there))
    }

    const SOON: Option<Duration> = Some(Duration::from_secs(5));

    #[test]
    fn messages_arrive_with_their_files() {
        let (mut here, mut there) = pair();
        let (mut reader, writer) = std::io::pipe().unwrap();
        here.send(&("one", 1_u32), &[]).unwrap();
        here.send(&("two", 2_u32), &[writer.as_fd()]).unwrap();
        drop(writer);
        let (message, mut files) = there.receive::<(String, u32)>(SOON).unwrap();
        assert_eq!((message.0.as_str(), files.next().is_none()), ("one", true));
        let (message, mut files) = there.receive::<(String, u32)>(SOON).unwrap();
        assert_eq!(message.1, 2);
        std::fs::File::from(files.required("writer").unwrap()).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through", "every writer is closed");
    }

    #[test]
    fn invalid_messages_are_refused() {
        let (mut here, mut there) = pair();
        here.send(&7_u8, &[]).unwrap();
        assert!(matches!(there.receive::<String>(SOON), Err(WireError::Invalid(_))));
        here.send(&(1_u8, 2_u8), &[]).unwrap();
        assert!(
            matches!(there.receive::<u8>(SOON), Err(WireError::Invalid(said)) if said == "1 bytes too many")
        );
        here.send(&vec![0_u8; MESSAGE_BYTES_MAX - 8], &[]).unwrap();
        assert_eq!(there.receive::<Vec<u8>>(SOON).unwrap().0.len(), MESSAGE_BYTES_MAX - 8);
        assert!(matches!(here.send(&vec![0_u8; MESSAGE_BYTES_MAX], &[]), Err(WireError::TooLarge)));
        let huge = vec![1_u8; MESSAGE_BYTES_MAX + 1];
        rustix::net::send(&here, &huge, SendFlags::empty()).unwrap();
        assert!(matches!(there.receive::<Vec<u8>>(SOON), Err(WireError::Invalid(_))));
    }

    #[test]
    fn a_closed_socket_and_a_late_message_are_different_errors() {
        let (mut here, mut there) = pair();
        assert!(matches!(there.receive::<u8>(Some(Duration::from_millis(20))), Err(WireError::Late)));
        here.send(&1_u8, &[]).unwrap();
        drop(here);
        assert_eq!(there.receive::<u8>(SOON).unwrap().0, 1);
        assert!(matches!(there.receive::<u8>(SOON), Err(WireError::Ended)));
        assert!(matches!(there.send(&1_u8, &[]), Err(WireError::Ended)));
    }

    #[test]
    fn closing_waits_for_the_other_end() {
        let (mut here, mut there) = pair();
        there.send(&1_u8, &[]).unwrap();
        assert!(matches!(here.close(Duration::from_millis(20)), Err(WireError::Late)));
        assert!(matches!(there.receive::<u8>(SOON), Err(WireError::Ended)));
        drop(there);
        here.close(Duration::from_secs(5)).unwrap();
    }
}
