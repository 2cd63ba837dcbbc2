//! What a gpulet offers its sessions: its stream, memory, and copies on the stream.

/// An error of the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CudaFault {
    /// The driver's message.
    pub message: String,
    /// Whether this process can no longer use the device.
    pub sticky: bool,
}

/// Pinned bytes on the host, which the device copies from and to at full speed. Freed when dropped.
pub trait HostBytes: Send {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The bytes, mutably.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Bytes on a device. Freed when dropped.
///
/// # Safety
/// [`length`](Self::length) bytes at the address belong to the owner of this alone until it is dropped.
#[expect(unsafe_code, reason = "other code reads and writes at the address")]
pub unsafe trait DeviceBytes: Send + Sync {
    /// Address on the device.
    fn address(&self) -> usize;

    /// Length in bytes.
    fn length(&self) -> usize;
}

/// Work that a stream recorded.
pub trait CudaGraph: Send {
    /// Enqueues the work on the stream that recorded it.
    ///
    /// # Errors
    /// The driver failed. If the work itself fails, waiting for the stream reports it.
    ///
    /// # Safety
    /// All memory that the work uses is still allocated, and no code accesses what it writes to until
    /// [`CudaStream::wait`] has returned.
    #[expect(unsafe_code, reason = "the work accesses memory at fixed addresses")]
    unsafe fn launch(&self) -> Result<(), CudaFault>;
}

/// The stream of a gpulet. The gpulet stays open as long as this exists.
///
/// # Safety
/// Until this is dropped, [`address`](Self::address) is a stream (`CUstream`) in the primary context of
/// [`device`](Self::device), or 0. [`wait`](Self::wait) returns `Ok` only if all work that was enqueued before has
/// finished. It returns an error only if that work has finished or never accesses memory again.
#[expect(unsafe_code, reason = "other code enqueues work on the address")]
pub unsafe trait CudaStream: Send + Sync {
    /// The driver's number for the device.
    fn device(&self) -> i32;

    /// The stream as libraries take it.
    fn address(&self) -> usize;

    /// Allocates pinned memory, at least a byte. May wait for all work on the device.
    ///
    /// # Errors
    /// The driver failed, for example because it is out of memory.
    fn host_bytes(&self, length: usize) -> Result<Box<dyn HostBytes>, CudaFault>;

    /// Allocates memory on the device, at least a byte. May wait for all work on the device.
    ///
    /// # Errors
    /// The driver failed, for example because it is out of memory.
    fn device_bytes(&self, length: usize) -> Result<Box<dyn DeviceBytes>, CudaFault>;

    /// Enqueues a copy to the device.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// `to` is the address of as many bytes of the device as `from` has, and no code accesses either side
    /// until [`wait`](Self::wait) has returned.
    unsafe fn copy_in(&self, from: &[u8], to: usize) -> Result<(), CudaFault>;

    /// Enqueues a copy from the device.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// `from` is the address of as many bytes of the device as `to` has, and no code accesses either side
    /// until [`wait`](Self::wait) has returned.
    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), CudaFault>;

    /// Records what `enqueue` enqueues on the stream; nothing of it runs. Until `enqueue` returns, calls of this thread that
    /// wait for the device or allocate its memory fail.
    ///
    /// # Errors
    /// The work cannot be recorded, for example because a part of it depends on the host.
    fn record(&self, enqueue: &mut dyn FnMut()) -> Result<Box<dyn CudaGraph>, CudaFault>;

    /// Waits until all enqueued work has finished.
    ///
    /// # Errors
    /// Some of the work failed, or the device did.
    fn wait(&self) -> Result<(), CudaFault>;
}
