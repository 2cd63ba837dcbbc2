//! Device memory, kept in host memory and counted against the size of the GPU.

use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::machine::{Answer, Buffer, Machine};

/// Largest buffer with content. A larger one is only counted, and copies to it fail.
const HELD_MAX: u64 = 16 << 20;

fn held(bytes: u64) -> Option<Box<[u8]>> {
    let bytes = usize::try_from(bytes).ok().filter(|_| bytes <= HELD_MAX)?;
    Some(vec![0; bytes].into())
}

impl Machine {
    /// Free and total bytes of the current GPU.
    pub(crate) fn memory(&mut self, current: usize) -> Answer<(u64, u64)> {
        let gpu = self.current_gpu("cuMemGetInfo", current)?;
        let used = self.gpus.get(gpu).map_or(0, |gpu| gpu.used_bytes);
        Ok((self.shape.memory_bytes.saturating_sub(used), self.shape.memory_bytes))
    }

    pub(crate) fn allocate(&mut self, current: usize, bytes: u64) -> Answer<usize> {
        let gpu = self.current_gpu("cuMemAlloc", current)?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let total = self.shape.memory_bytes;
        let Some(state) = self.gpus.get_mut(gpu) else { return Err(INVALID_VALUE) };
        if state.used_bytes.saturating_add(bytes) > total {
            return Err(OUT_OF_MEMORY);
        }
        state.used_bytes += bytes;
        let held = held(bytes);
        let address = held.as_ref().map_or_else(|| self.new_handle(), |held| held.as_ptr().addr());
        self.buffers.insert(address, Buffer { gpu, bytes, held });
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: usize) -> Answer<()> {
        let Some(freed) = self.buffers.remove(&address) else {
            return Err(
                self.broken("cuMemFree of an address that is not allocated".to_owned(), INVALID_VALUE)
            );
        };
        if let Some(gpu) = self.gpus.get_mut(freed.gpu) {
            gpu.used_bytes = gpu.used_bytes.saturating_sub(freed.bytes);
        }
        Ok(())
    }

    /// Takes bytes as another library would (`taken`), or frees them.
    pub(crate) fn occupy(&mut self, bytes: u64, taken: bool) {
        for gpu in &mut self.gpus {
            gpu.used_bytes = if taken {
                gpu.used_bytes.saturating_add(bytes)
            } else {
                gpu.used_bytes.saturating_sub(bytes)
            };
        }
    }

    /// Pins memory and returns its address, to which the caller writes.
    pub(crate) fn pin(&mut self, current: usize, bytes: u64) -> Answer<usize> {
        let gpu = self.current_gpu("cuMemHostAlloc", current)?;
        let Some(mut held) = held(bytes).filter(|_| bytes > 0) else { return Err(OUT_OF_MEMORY) };
        let address = held.as_mut_ptr().expose_provenance();
        self.pinned.insert(address, Buffer { gpu, bytes, held: Some(held) });
        Ok(address)
    }

    pub(crate) fn unpin(&mut self, address: usize) -> Answer<()> {
        match self.pinned.remove(&address) {
            Some(_) => Ok(()),
            None => {
                Err(self.broken("cuMemFreeHost of an address that is not pinned".to_owned(), INVALID_VALUE))
            }
        }
    }

    /// The bytes of a buffer from an address within it.
    pub(crate) fn device_bytes(&mut self, call: &str, address: usize, length: usize) -> Answer<&mut [u8]> {
        let start = self
            .buffers
            .range(..=address)
            .next_back()
            .map(|(&start, buffer)| (start, buffer.held.as_deref()));
        let inside = start.and_then(|(start, held)| {
            let range = address - start..(address - start).checked_add(length)?;
            held?.get(range.clone()).map(|_| (start, range))
        });
        let Some((start, range)) = inside else {
            return Err(self.broken(format!("{call} outside of every buffer"), INVALID_VALUE));
        };
        let held = self.buffers.get_mut(&start).and_then(|buffer| buffer.held.as_mut());
        held.and_then(|held| held.get_mut(range)).ok_or(INVALID_VALUE)
    }

    /// Checks that a copy may use this stream.
    pub(crate) fn copies_on(&mut self, call: &str, stream: usize) -> Answer<()> {
        if stream == 0 {
            return Err(self.broken(format!("{call} on the null stream, which uses every SM"), INVALID_VALUE));
        }
        if self.streams.contains_key(&stream) { Ok(()) } else { Err(self.unknown(call, "stream", stream)) }
    }
}
