//! Messages between the server and a model's Python process.
//!
//! A message is a packet of a `SOCK_SEQPACKET` socket: a head of 16 bytes (length of the JSON, place of the body, length of
//! the body) and a body (the JSON, then the tensors, each at a multiple of 64). A body of more than 64 KiB lies in a memory
//! file, which the sender keeps for its next messages. Small bodies stay in the packet: that takes one system call for each
//! side and no page faults.
//!
//! The server reads and writes memory files with system calls instead of mapping them, so what the other process does to
//! them can make a message invalid but nothing else.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest body in a packet.
const PACKET_BODY_MAX: usize = 64 * 1024;
const HEAD_BYTES: usize = 16;
/// Tensors start at a multiple of this, which aligns every element type.
const ALIGNMENT: usize = 64;
/// Bound on the body of a message.
pub(super) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

const IN_PACKET: u32 = 0;
const IN_FILE: u32 = 1;
const IN_NEW_FILE: u32 = 2;
/// Added to the place by the Python process: it still uses the last file that it was sent.
const HOLDS: u32 = 4;

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub(super) enum PacketError {
    /// The other process has ended or closed its socket.
    #[error("the process has ended")]
    Ended,
    /// No message came in time.
    #[error("no message in time")]
    Late,
    /// The bytes are not a message.
    #[error("invalid message: {0}")]
    Invalid(String),
    /// The message is too long.
    #[error("a message of {0} bytes: expected at most {BODY_BYTES_MAX}")]
    TooLarge(usize),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for PacketError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Ended,
            Errno::AGAIN => Self::Late,
            other => Self::System(other.into()),
        }
    }
}

/// Places of tensors in the message that is written, relative to the end of its JSON.
#[derive(Default)]
pub(super) struct Layout {
    tensors: Vec<(usize, Bytes)>,
    end: usize,
}

impl Layout {
    /// Adds a tensor and returns its place.
    pub fn place(&mut self, data: &Bytes) -> usize {
        let at = aligned(self.end);
        self.end = at.saturating_add(data.len());
        self.tensors.push((at, data.clone()));
        at
    }
}

/// A message that was received.
pub(super) struct Received<T> {
    pub head: T,
    /// Whether the other side still uses the last file that it was sent.
    pub holds: bool,
    /// The tensors.
    tensors: Bytes,
}

impl<T> Received<T> {
    /// Another head with the tensors of this message.
    pub fn with<U>(&self, head: U) -> Received<U> {
        Received { head, holds: self.holds, tensors: self.tensors.clone() }
    }

    /// A tensor of the message.
    pub fn tensor(&self, at: usize, length: usize) -> Result<Bytes, PacketError> {
        let end = at.checked_add(length).filter(|&end| end <= self.tensors.len());
        let end = end.ok_or_else(|| PacketError::Invalid("a tensor is outside of its message".to_owned()))?;
        Ok(self.tensors.slice(at..end))
    }
}

/// One end of a socket. Each thread that sends or receives has its own, because of the buffers.
pub(super) struct Packets {
    socket: OwnedFd,
    buffer: Vec<u8>,
    timeout: Option<Duration>,
    /// The file for bodies that this side sends, and its length.
    own: Option<(OwnedFd, usize)>,
    /// The other side's.
    theirs: Option<OwnedFd>,
}

impl Packets {
    /// A pair of connected sockets; the second is for the other process.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::from(here), there))
    }

    /// A second handle of the same end.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::from(self.socket.try_clone()?))
    }

    /// Takes another file for the next long body, because the other side still uses the last one.
    pub fn leave_file(&mut self) {
        self.own = None;
    }

    /// Sends a message, and a descriptor with it.
    pub fn send(
        &mut self,
        head: &impl Serialize,
        layout: &Layout,
        passed: Option<BorrowedFd<'_>>,
    ) -> Result<(), PacketError> {
        let mut body = Vec::with_capacity(1024);
        serde_json::to_writer(&mut body, head).map_err(|error| PacketError::Invalid(error.to_string()))?;
        let json = u32::try_from(body.len()).map_err(|_| PacketError::TooLarge(body.len()))?;
        let start = aligned(body.len());
        let length = if layout.end == 0 { body.len() } else { start.saturating_add(layout.end) };
        if length > BODY_BYTES_MAX {
            return Err(PacketError::TooLarge(length));
        }
        if length <= PACKET_BODY_MAX {
            for (at, data) in &layout.tensors {
                body.resize(start + at, 0);
                body.extend_from_slice(data);
            }
            return self.send_packet(json, IN_PACKET, length, &body, passed);
        }
        let (file, new) = match self.own.take() {
            Some((file, bytes)) if bytes >= length => ((file, bytes), false),
            _ => {
                let bytes = length.checked_next_power_of_two().unwrap_or(length);
                let file = memfd_create(c"tessera-tensors", MemfdFlags::CLOEXEC)?;
                ftruncate(&file, bytes as u64)?;
                ((file, bytes), true)
            }
        };
        write_all(&file.0, &body, 0)?;
        for (at, data) in &layout.tensors {
            write_all(&file.0, data, start + at)?;
        }
        let descriptor = new.then(|| file.0.as_fd());
        let sent = self.send_packet(json, if new { IN_NEW_FILE } else { IN_FILE }, length, &[], descriptor);
        self.own = Some(file);
        sent
    }

    fn send_packet(
        &self,
        json: u32,
        place: u32,
        length: usize,
        body: &[u8],
        passed: Option<BorrowedFd<'_>>,
    ) -> Result<(), PacketError> {
        let mut head = [0_u8; HEAD_BYTES];
        let fields = [u64::from(json) | u64::from(place) << 32, length as u64];
        for (part, field) in head.chunks_exact_mut(8).zip(fields) {
            part.copy_from_slice(&field.to_le_bytes());
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = passed.as_slice();
        if !passed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(passed)) {
            return Err(PacketError::Invalid("no space for a descriptor".to_owned()));
        }
        let parts = [IoSlice::new(&head), IoSlice::new(body)];
        loop {
            match sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Waits for a message for at most `limit`; forever without one.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<Received<T>, PacketError> {
        let until = limit.map(|limit| Instant::now() + limit);
        self.set_timeout(limit)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut self.buffer)];
            match recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {
                    let Some(until) = until else { continue };
                    let rest = until.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        return Err(PacketError::Late);
                    }
                    self.set_timeout(Some(rest))?;
                }
                received => break received?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut passed) = message {
                self.theirs = passed.next().or(self.theirs.take());
            }
        }
        if received.bytes == 0 {
            return Err(PacketError::Ended);
        }
        let invalid = |reason: &str| PacketError::Invalid(reason.to_owned());
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(invalid("the packet is too long"));
        }
        let packet = self.buffer.get(..received.bytes).unwrap_or_default();
        let (head, body) =
            packet.split_at_checked(HEAD_BYTES).ok_or_else(|| invalid("the head is too short"))?;
        let (fields, _) = head.as_chunks::<8>();
        let [first, length] = fields else { return Err(invalid("the head is too short")) };
        let first = u64::from_le_bytes(*first);
        let (json, place) = ((first & u64::from(u32::MAX)) as usize, (first >> 32) as u32);
        let (place, holds) = (place & !HOLDS, place & HOLDS != 0);
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let body = match (place, &self.theirs) {
            (IN_PACKET, _) => Bytes::copy_from_slice(body),
            (IN_FILE | IN_NEW_FILE, Some(_)) if length > BODY_BYTES_MAX => {
                return Err(PacketError::TooLarge(length));
            }
            (IN_FILE | IN_NEW_FILE, Some(file)) => read_all(file, length)?,
            _ => return Err(invalid("the body is missing")),
        };
        let encoded = body.get(..json).ok_or_else(|| invalid("the JSON is longer than the message"))?;
        let head =
            serde_json::from_slice(encoded).map_err(|error| PacketError::Invalid(error.to_string()))?;
        let start = aligned(json).min(body.len());
        Ok(Received { head, holds, tensors: body.slice(start..) })
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> Result<(), PacketError> {
        if self.timeout != limit {
            set_socket_timeout(&self.socket, Timeout::Recv, limit)?;
            self.timeout = limit;
        }
        Ok(())
    }
}

impl From<OwnedFd> for Packets {
    fn from(socket: OwnedFd) -> Self {
        let buffer = vec![0; HEAD_BYTES + PACKET_BODY_MAX];
        Self { socket, buffer, timeout: None, own: None, theirs: None }
    }
}

fn aligned(length: usize) -> usize {
    length.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX)
}

fn write_all(file: &OwnedFd, mut data: &[u8], mut at: usize) -> Result<(), PacketError> {
    while !data.is_empty() {
        let written = pwrite(file, data, at as u64)?;
        data = data.get(written..).unwrap_or_default();
        at += written;
    }
    Ok(())
}

fn read_all(file: &OwnedFd, length: usize) -> Result<Bytes, PacketError> {
    let mut data = Vec::with_capacity(length);
    while data.len() < length {
        let at = data.len() as u64;
        let read = pread(file, rustix::buffer::spare_capacity(&mut data), at)?;
        if read == 0 {
            return Err(PacketError::Invalid("the memory file is shorter than the message".to_owned()));
        }
    }
    data.truncate(length);
    Ok(data.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Packets, Packets) {
        let (here, there) = Packets::pair().unwrap();
        (here, Packets::from(there))
    }

    #[test]
    fn short_and_long_messages_arrive_with_their_tensors() {
        let (mut here, mut there) = pair();
        for length in [0, 1, 1000, PACKET_BODY_MAX, 3_000_000, 10] {
            let tensors = [Bytes::from(vec![7; length]), Bytes::from(vec![9; 65])];
            let mut layout = Layout::default();
            let places = tensors.each_ref().map(|tensor| (layout.place(tensor), tensor.len()));
            here.send(&("head", places), &layout, None).unwrap();
            let received = there.receive::<(String, [(usize, usize); 2])>(None).unwrap();
            for ((at, length), tensor) in received.head.1.into_iter().zip(&tensors) {
                assert_eq!(at % ALIGNMENT, 0);
                assert_eq!(received.tensor(at, length).unwrap(), tensor);
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let (mut here, mut there) = pair();
        assert!(matches!(there.receive::<u8>(Some(Duration::from_millis(5))), Err(PacketError::Late)));
        here.send(&"text", &Layout::default(), None).unwrap();
        assert!(matches!(there.receive::<u8>(None), Err(PacketError::Invalid(_))));
        here.send_packet(400, IN_PACKET, 3, b"abc", None).unwrap();
        assert!(matches!(there.receive::<String>(None), Err(PacketError::Invalid(_))));
        here.send_packet(1, IN_FILE, 3, b"", None).unwrap();
        assert!(matches!(there.receive::<String>(None), Err(PacketError::Invalid(_))));
        here.send_packet(1, IN_NEW_FILE, usize::MAX, b"", None).unwrap();
        assert!(there.receive::<String>(None).is_err());
        drop(here);
        assert!(matches!(there.receive::<u8>(None), Err(PacketError::Ended)));
    }
}
