//! Checks that a new context works: bytes go to the device and back on its stream, and an event completes.

use std::sync::Arc;

use crate::driver::{DeviceBuffer, DriverError, Event, PinnedBuffer, Primary, Stream};

const BYTES: usize = 4096;

/// Why a context is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("the device returned other bytes than were sent")]
    Bytes,
}

/// Buffers for the check, allocated once, because allocating can wait for all work on the device.
pub(crate) struct Check {
    host: PinnedBuffer,
    device: DeviceBuffer,
    done: Event,
    round: u8,
}

impl Check {
    pub(crate) fn new(primary: &Arc<Primary>) -> Result<Self, DriverError> {
        Ok(Self {
            host: PinnedBuffer::allocate(primary, BYTES)?,
            device: DeviceBuffer::allocate(primary, BYTES)?,
            done: Event::create(primary)?,
            round: 0,
        })
    }

    pub(crate) fn run(&mut self, stream: &Stream) -> Result<(), CheckError> {
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        let sent = |index: usize| index.to_le_bytes().iter().fold(round, |sum, byte| sum.wrapping_add(*byte));
        for (index, byte) in self.host.bytes_mut().iter_mut().enumerate() {
            *byte = sent(index);
        }
        stream.copy_in(&self.host, &mut self.device, &self.done)?;
        self.host.bytes_mut().fill(0);
        stream.copy_out(&self.device, &mut self.host, &self.done)?;
        let came = self.host.bytes().iter().enumerate().all(|(index, byte)| *byte == sent(index));
        if came { Ok(()) } else { Err(CheckError::Bytes) }
    }
}
