//! The tests' side: inspects the stand-in that the process under test has loaded, and controls it.

#![expect(unsafe_code, reason = "symbols of a library are called by their C types")]

use std::ffi::CString;

use libloading::Library;

/// Kinds of objects that a driver creates and expects to be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Retained primary contexts.
    Primary = 0,
    /// Green contexts.
    Green = 1,
    /// Streams, of green and of primary contexts.
    Stream = 2,
    /// Events, recorded or not.
    Event = 3,
    /// Buffers in device memory.
    Buffer = 4,
    /// Pinned buffers.
    Pinned = 5,
    /// Initialisations of the management library.
    Management = 6,
    /// Loaded modules.
    Module = 7,
    /// Samples of the management library.
    Sample = 8,
    /// Recorded work, launchable or not.
    Recorded = 9,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Primary,
        Self::Green,
        Self::Stream,
        Self::Event,
        Self::Buffer,
        Self::Pinned,
        Self::Management,
        Self::Module,
        Self::Sample,
        Self::Recorded,
    ];
}

/// The library that was found as the driver is not the stand-in.
#[derive(Debug, thiserror::Error)]
#[error("the driver library is not the stand-in: {0}")]
pub struct NotStandin(#[from] libloading::Error);

/// A stand-in that this process has loaded under the driver's name.
pub struct Control {
    fail: unsafe extern "C" fn(*const std::ffi::c_char, u64, u32),
    heal: extern "C" fn(),
    calls: unsafe extern "C" fn(*const std::ffi::c_char) -> u64,
    alive: extern "C" fn(u32) -> u64,
    violations: unsafe extern "C" fn(*mut u8, usize) -> usize,
    hold: extern "C" fn(usize, bool),
    occupy: extern "C" fn(u64, bool),
    stream_sms: unsafe extern "C" fn(usize, *mut u32, usize) -> usize,
    stream_priority: extern "C" fn(usize) -> i32,
    _library: Library,
}

impl Control {
    /// Finds `libcuda.so` as the program under test does, and resolves the stand-in's hooks in it.
    pub fn open() -> Result<Self, NotStandin> {
        // SAFETY: loading the stand-in runs no code; the types are those of `hooks.rs`.
        unsafe {
            let library = Library::new("libcuda.so")?;
            Ok(Self {
                fail: *library.get(b"standin_fail\0")?,
                heal: *library.get(b"standin_heal\0")?,
                calls: *library.get(b"standin_calls\0")?,
                alive: *library.get(b"standin_alive\0")?,
                violations: *library.get(b"standin_violations\0")?,
                hold: *library.get(b"standin_hold\0")?,
                occupy: *library.get(b"standin_occupy\0")?,
                stream_sms: *library.get(b"standin_stream_sms\0")?,
                stream_priority: *library.get(b"standin_stream_priority\0")?,
                _library: library,
            })
        }
    }

    /// Makes the `nth` next call of a function (`cuGreenCtxCreate`) fail with a code; 1 is the next call.
    pub fn fail(&self, call: &str, nth: u64, code: u32) {
        let call = CString::new(call).unwrap_or_default();
        // SAFETY: the string ends with a zero and outlives the call.
        unsafe { (self.fail)(call.as_ptr(), nth, code) }
    }

    /// Cancels failures that have not happened yet, and clears a sticky error.
    pub fn heal(&self) {
        (self.heal)();
    }

    /// How often a function was called.
    pub fn calls(&self, call: &str) -> u64 {
        let call = CString::new(call).unwrap_or_default();
        // SAFETY: the string ends with a zero and outlives the call.
        unsafe { (self.calls)(call.as_ptr()) }
    }

    /// How many objects of a kind exist.
    pub fn alive(&self, kind: Kind) -> u64 {
        (self.alive)(kind as u32)
    }

    /// All existing objects, as kinds and counts above zero.
    pub fn everything(&self) -> Vec<(Kind, u64)> {
        let counts = Kind::ALL.map(|kind| (kind, self.alive(kind)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Violations of the driver's rules so far.
    pub fn violations(&self) -> Vec<String> {
        // SAFETY: null is allowed and writes nothing.
        let length = unsafe { (self.violations)(std::ptr::null_mut(), 0) };
        let mut bytes = vec![0; length];
        // SAFETY: `length` bytes may be written.
        unsafe { (self.violations)(bytes.as_mut_ptr(), bytes.len()) };
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }

    /// Sets whether work is in flight on a stream.
    pub fn hold(&self, stream: usize, busy: bool) {
        (self.hold)(stream, busy);
    }

    /// Takes device memory from every GPU (`taken`), as a library does that loads a model, or frees it.
    pub fn occupy(&self, bytes: u64, taken: bool) {
        (self.occupy)(bytes, taken);
    }

    /// The priority of a stream; smaller is more urgent.
    pub fn stream_priority(&self, stream: usize) -> i32 {
        (self.stream_priority)(stream)
    }

    /// Numbers of the SMs that the work of a stream may use.
    pub fn stream_sms(&self, stream: usize) -> Vec<u32> {
        // SAFETY: null is allowed and writes nothing.
        let length = unsafe { (self.stream_sms)(stream, std::ptr::null_mut(), 0) };
        let mut sms = vec![0; length];
        // SAFETY: `length` numbers may be written.
        unsafe { (self.stream_sms)(stream, sms.as_mut_ptr(), sms.len()) };
        sms
    }
}
