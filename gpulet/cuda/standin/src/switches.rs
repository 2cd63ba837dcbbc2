//! What tests reach of the machine: C functions beside the driver's, called through [`Control`](crate::Control).

#![expect(unsafe_code, reason = "these are C functions: they are exported by name and use pointers")]

use std::ffi::{CStr, c_char};

use crate::calls::with_machine;

/// The text behind a pointer; nothing for null or for what is no text.
fn text(place: *const c_char) -> String {
    if place.is_null() {
        return String::new();
    }
    // SAFETY: not null; `Control` gives a string that ends with a zero.
    unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned()
}

/// Makes a call fail with a code at its n-th use from now on.
///
/// # Safety
/// `call` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_fail(call: *const c_char, nth: u64, code: u32) {
    let call = text(call);
    with_machine(|machine| machine.fail(&call, nth, code));
}

/// Forgets faults.
#[unsafe(no_mangle)]
pub extern "C" fn standin_heal() {
    with_machine(crate::machine::Machine::heal);
}

/// How often a call was made.
///
/// # Safety
/// `call` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_calls(call: *const c_char) -> u64 {
    let call = text(call);
    with_machine(|machine| machine.count(&call))
}

/// How many things of a kind exist.
#[unsafe(no_mangle)]
pub extern "C" fn standin_alive(kind: u32) -> u64 {
    with_machine(|machine| u64::try_from(machine.alive(kind)).unwrap_or(u64::MAX))
}

/// Writes the broken rules, one a line, and gives the length of all of them.
///
/// # Safety
/// `room` bytes may be written at `place`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_violations(place: *mut u8, room: usize) -> usize {
    let all = with_machine(|machine| machine.violations());
    if !place.is_null() {
        // SAFETY: no more than the room that the caller says is there.
        unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), place, all.len().min(room)) };
    }
    all.len()
}

/// Says that work is in flight on a stream, or that it ended.
#[unsafe(no_mangle)]
pub extern "C" fn standin_hold(stream: usize, busy: bool) {
    with_machine(|machine| machine.hold(stream, busy));
}

/// Takes device memory from every GPU as a library would, or gives it back.
#[unsafe(no_mangle)]
pub extern "C" fn standin_occupy(bytes: u64, taken: bool) {
    with_machine(|machine| machine.occupy(bytes, taken));
}

/// Writes the numbers of the SMs that a stream's work may use and gives how many they are; 0 for no such stream.
///
/// # Safety
/// `room` numbers may be written at `place`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_stream_sms(stream: usize, place: *mut u32, room: usize) -> usize {
    let sms: Vec<u32> =
        with_machine(|machine| machine.stream_sms(stream)).unwrap_or_default().into_iter().collect();
    if !place.is_null() {
        // SAFETY: no more than the room that the caller says is there.
        unsafe { std::ptr::copy_nonoverlapping(sms.as_ptr(), place, sms.len().min(room)) };
    }
    sms.len()
}
