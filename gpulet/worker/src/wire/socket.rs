//! One end of a conversation.
//!
//! Messages keep their bounds (`SOCK_SEQPACKET`), so there are no partial ones, and files stay with the message that
//! they belong to.

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

/// Bound on a message: 256 tensors with long names, and below what a socket takes at once.
const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Bound on the files of a message.
const FILES_MAX: usize = 2;

/// Why a message could not be sent or was not received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// Nothing more will come: the other end is closed.
    #[error("the other end is closed")]
    Ended,
    /// Nothing came in time.
    #[error("nothing came in time")]
    Late,
    /// What came is no message, or not the one that was due.
    #[error("no message: {0}")]
    Garbage(String),
    /// The message is too large to be sent.
    #[error("a message of more than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// The system refused.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Files that came with a message.
pub(crate) struct Files(Vec<OwnedFd>);

impl Files {
    /// The next one.
    pub fn next(&mut self) -> Option<OwnedFd> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    /// The next one, which must be there.
    pub fn due(&mut self, what: &str) -> Result<OwnedFd, WireError> {
        self.next().ok_or_else(|| WireError::Garbage(format!("the {what} is missing")))
    }
}

/// One end of a conversation.
pub(crate) struct Socket {
    file: OwnedFd,
    /// Holds a message; its pages are not there before they are used.
    buffer: Vec<u8>,
    /// How long the system waits for a message, if that was said.
    waits: Option<Duration>,
}

impl Socket {
    /// Both ends; the second one is for another process.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::from(here), there))
    }

    /// Another handle of the same end.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::from(self.file.try_clone()?))
    }

    /// Sends a message, with files. Waits while the other end has no room for it.
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

    /// Waits for a message, for so long or for ever.
    pub fn receive<T: DeserializeOwned>(&mut self, limit: Option<Duration>) -> Result<(T, Files), WireError> {
        let until = limit.map(|limit| Instant::now() + limit);
        self.waits(limit)?;
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
                    self.waits(Some(rest))?;
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
            return Err(WireError::Garbage("larger than any".to_owned()));
        }
        if received.bytes == 0 {
            return Err(WireError::Ended);
        }
        let encoded = self.buffer.get(..received.bytes).unwrap_or_default();
        let decoded =
            postcard::take_from_bytes(encoded).map_err(|error| WireError::Garbage(error.to_string()))?;
        match decoded {
            (message, []) => Ok((message, Files(files))),
            (_, rest) => Err(WireError::Garbage(format!("{} bytes too many", rest.len()))),
        }
    }

    fn waits(&mut self, limit: Option<Duration>) -> Result<(), WireError> {
        if self.waits != limit {
            set_socket_timeout(&self.file, Timeout::Recv, limit).map_err(io::Error::from)?;
            self.waits = limit;
        }
        Ok(())
    }

    /// Says that nothing more will come, and waits until the other end has closed what this was about, but not for
    /// ever. Whatever else it still says is not heard.
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
                Ok(_) | Err(WireError::Garbage(_)) => {}
                Err(other) => return Err(other),
            }
        }
    }

    /// Says that nothing more will come.
    pub fn hang_up(&self) {
        // A socket whose other end is gone needs no word.
        let _gone = shutdown(&self.file, Shutdown::Write);
    }
}

impl From<OwnedFd> for Socket {
    fn from(file: OwnedFd) -> Self {
        Self { file, buffer: vec![0; MESSAGE_BYTES_MAX], waits: None }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
        std::fs::File::from(files.due("writer").unwrap()).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through", "and every writer is closed");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (mut here, mut there) = pair();
        here.send(&7_u8, &[]).unwrap();
        assert!(matches!(there.receive::<String>(SOON), Err(WireError::Garbage(_))));
        here.send(&(1_u8, 2_u8), &[]).unwrap();
        assert!(
            matches!(there.receive::<u8>(SOON), Err(WireError::Garbage(said)) if said == "1 bytes too many")
        );
        here.send(&vec![0_u8; MESSAGE_BYTES_MAX - 8], &[]).unwrap();
        assert_eq!(there.receive::<Vec<u8>>(SOON).unwrap().0.len(), MESSAGE_BYTES_MAX - 8);
        assert!(matches!(here.send(&vec![0_u8; MESSAGE_BYTES_MAX], &[]), Err(WireError::TooLarge)));
        let huge = vec![1_u8; MESSAGE_BYTES_MAX + 1];
        rustix::net::send(&here, &huge, SendFlags::empty()).unwrap();
        assert!(matches!(there.receive::<Vec<u8>>(SOON), Err(WireError::Garbage(_))));
    }

    #[test]
    fn an_end_is_told_from_a_delay() {
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
