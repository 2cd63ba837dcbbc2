//! Releasing memory to the operating system.

/// Blocks of at least this many bytes are mapped one by one and unmapped when freed. Tensors of usual size are
/// below it: mapping a new one for every request costs a page fault every 4 KiB.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK_BYTES: i32 = 4 * 1024 * 1024;

/// Free bytes that the heap may keep at its end for the next burst.
#[cfg(target_env = "gnu")]
const HEAP_SLACK_BYTES: i32 = 32 * 1024 * 1024;

/// Heaps of the process; more of them keep more memory from being given back.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 2;

/// Makes the allocator give large blocks back to the system when they are freed. Call once, before the first
/// thread starts.
///
/// glibc raises its threshold for mapping blocks with every larger block that is freed; weights and bodies then
/// come from the heap, where small blocks that stay keep them from being given back. Measured over 100 cycles
/// of loading and unloading 9 MiB of weights: 40 MiB are lost without this, 2 MiB with it.
pub fn give_back_large_blocks() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES),
        (libc::M_TRIM_THRESHOLD, HEAP_SLACK_BYTES),
        (libc::M_ARENA_MAX, HEAPS),
    ] {
        #[expect(unsafe_code, reason = "mallopt has no safe wrapper; it takes two integers")]
        // SAFETY: `mallopt` has no preconditions; an option that it does not know is ignored.
        unsafe {
            libc::mallopt(option, value);
        }
    }
}

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
