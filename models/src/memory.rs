//! Giving memory back.

/// Returns memory that was freed, but that the allocator still holds, to the operating system. Call after a
/// model was unloaded: its weights lie between things that stay, so the allocator does not notice by itself
/// that whole pages became empty. Takes milliseconds.
pub fn release_unused_memory() {
    #[cfg(target_env = "gnu")]
    #[expect(
        unsafe_code,
        reason = "malloc_trim has no safe wrapper; it takes no pointer and may be called any time"
    )]
    // SAFETY: `malloc_trim` has no preconditions and is safe to call from several threads.
    unsafe {
        libc::malloc_trim(0);
    }
}
