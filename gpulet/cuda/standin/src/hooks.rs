//! Hooks for tests: C functions in addition to the driver's, called through [`Control`](crate::Control).

#![expect(unsafe_code, reason = "these are C functions: they are exported by name and use pointers")]

use std::ffi::{CStr, c_char};

use crate::calls::with_machine;

/// The text at a pointer; empty for null.
fn text(place: *const c_char) -> String {
    if place.is_null() {
        return String::new();
    }
    // SAFETY: not null; `Control` passes a string with a terminating zero.
    unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned()
}

/// Makes the `nth` next use of a call fail with a code.
///
/// # Safety
/// `call` is null or a string with a terminating zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_fail(call: *const c_char, nth: u64, code: u32) {
    let call = text(call);
    with_machine(|machine| machine.fail(&call, nth, code));
}

/// Cancels failures that have not happened yet, and clears a sticky error.
#[unsafe(no_mangle)]
pub extern "C" fn standin_heal() {
    with_machine(crate::machine::Machine::heal);
}

/// How often a function was called.
///
/// # Safety
/// `call` is null or a string with a terminating zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_calls(call: *const c_char) -> u64 {
    let call = text(call);
    with_machine(|machine| machine.count(&call))
}

/// How many objects of a kind exist.
#[unsafe(no_mangle)]
pub extern "C" fn standin_alive(kind: u32) -> u64 {
    with_machine(|machine| u64::try_from(machine.alive(kind)).unwrap_or(u64::MAX))
}

/// Writes the violations, one per line, and returns their full length.
///
/// # Safety
/// `capacity` bytes may be written at `place`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_violations(place: *mut u8, capacity: usize) -> usize {
    let all = with_machine(|machine| machine.violations());
    if !place.is_null() {
        // SAFETY: at most `capacity` bytes, which the caller provides.
        unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), place, all.len().min(capacity)) };
    }
    all.len()
}

/// Sets whether work is in flight on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn standin_hold(stream: usize, busy: bool) {
    with_machine(|machine| machine.hold(stream, busy));
}

/// Takes device memory from every GPU (`taken`), as a library would, or frees it.
#[unsafe(no_mangle)]
pub extern "C" fn standin_occupy(bytes: u64, taken: bool) {
    with_machine(|machine| machine.occupy(bytes, taken));
}

/// The priority of a stream; smaller is more urgent. `i32::MAX` for an unknown stream.
#[unsafe(no_mangle)]
pub extern "C" fn standin_stream_priority(stream: usize) -> i32 {
    with_machine(|machine| machine.stream_priority(stream)).unwrap_or(i32::MAX)
}

/// Writes the numbers of the SMs that the work of a stream may use, and returns their count; 0 for an unknown stream.
///
/// # Safety
/// `capacity` numbers may be written at `place`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_stream_sms(stream: usize, place: *mut u32, capacity: usize) -> usize {
    let sms: Vec<u32> =
        with_machine(|machine| machine.stream_sms(stream)).unwrap_or_default().into_iter().collect();
    if !place.is_null() {
        // SAFETY: at most `capacity` numbers, which the caller provides.
        unsafe { std::ptr::copy_nonoverlapping(sms.as_ptr(), place, sms.len().min(capacity)) };
    }
    sms.len()
}
