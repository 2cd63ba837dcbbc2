//! Our own kernels as safe calls, each of which returns when the kernel has finished.

#![expect(unsafe_code, reason = "kernels are launched by address; each use says why it is sound")]

use std::ffi::CStr;
use std::time::Duration;

use gpulet_cuda::driver::{DeviceBuffer, DriverError, Event, Kernel, Module, Primary, Stream};

/// The PTX text, with a terminating zero for the driver.
const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");

/// An address that is never mapped: it is in the first page.
const NOWHERE: u64 = 0x10;

/// Threads of a block that takes half of an SM.
const THREADS_FULL: u32 = 1024;
/// Threads of a block of the other kernels.
const THREADS: u32 = 512;

/// The kernels, loaded on one device.
pub(crate) struct Kernels {
    record_sms: Kernel,
    work: Kernel,
    copy_words: Kernel,
    poke: Kernel,
}

impl Kernels {
    /// Loads the kernels.
    pub(crate) fn load(primary: &std::sync::Arc<Primary>) -> Result<Self, DriverError> {
        let module = Module::load(primary, CStr::from_bytes_until_nul(PTX.as_bytes()).unwrap_or_default())?;
        Ok(Self {
            record_sms: module.kernel(c"record_sms")?,
            work: module.kernel(c"work")?,
            copy_words: module.kernel(c"copy_words")?,
            poke: module.kernel(c"poke")?,
        })
    }

    /// One block per word of `out` writes the number of its SM there, and holds the SM for `hold`.
    pub(crate) fn record_sms(
        &self,
        stream: &Stream,
        out: &mut DeviceBuffer,
        hold: Duration,
        done: &Event,
    ) -> Result<(), DriverError> {
        let hold = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
        let blocks = words(out);
        // SAFETY: an address and a number, as the text declares; block n writes word n of a buffer that is borrowed until
        // the kernel has finished.
        unsafe { stream.launch(&self.record_sms, blocks, THREADS_FULL, &[out.address(), hold]) }?;
        over(stream, done)
    }

    /// One block per word of `out` computes `rounds` steps and writes the result.
    pub(crate) fn work(
        &self,
        stream: &Stream,
        out: &mut DeviceBuffer,
        rounds: u64,
        done: &Event,
    ) -> Result<(), DriverError> {
        let blocks = words(out);
        // SAFETY: as above.
        unsafe { stream.launch(&self.work, blocks, THREADS, &[out.address(), rounds]) }?;
        over(stream, done)
    }

    /// Copies as many bytes as both buffers have, `passes` times, with `blocks` blocks.
    pub(crate) fn copy(
        &self,
        stream: &Stream,
        (from, to): (&DeviceBuffer, &mut DeviceBuffer),
        (blocks, passes): (u32, u32),
        done: &Event,
    ) -> Result<(), DriverError> {
        let count = u64::try_from(from.len().min(to.len()) / 16).unwrap_or(0);
        let arguments = [from.address(), to.address(), count];
        for _ in 0..passes {
            // SAFETY: two addresses and a count of words of 16 bytes, as the text declares, which both buffers have; both
            // are borrowed until the kernels have finished.
            let launched = unsafe { stream.launch(&self.copy_words, blocks, THREADS, &arguments) };
            if let Err(error) = launched {
                let _ = stream.wait();
                return Err(error);
            }
        }
        over(stream, done)
    }

    /// Writes to an unmapped address: a fault that ends all work of this process on the device.
    pub(crate) fn fault(&self, stream: &Stream, done: &Event) -> Result<(), DriverError> {
        // SAFETY: an address, as the text declares. It is not mapped, so nothing is written.
        unsafe { stream.launch(&self.poke, 1, 1, &[NOWHERE]) }?;
        over(stream, done)
    }
}

fn words(buffer: &DeviceBuffer) -> u32 {
    u32::try_from(buffer.len() / size_of::<u32>()).unwrap_or(0)
}

/// Waits until launched kernels have finished, or the device failed, so that their buffers are free again.
fn over(stream: &Stream, done: &Event) -> Result<(), DriverError> {
    stream.record(done).and_then(|()| done.wait()).inspect_err(|_| {
        let _ = stream.wait();
    })
}
