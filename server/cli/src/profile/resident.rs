//! Resident memory of this process, as reported by the kernel. `None` if the kernel does not report it.

use std::fs;

/// Value for `clear_refs` that resets the peak.
const FORGET_PEAK: &str = "5";

/// Current bytes, including freed blocks that were not returned to the kernel.
pub fn now() -> Option<u64> {
    // The rollup counts pages. The status sums counters of each core, which lag behind.
    value("/proc/self/smaps_rollup", "Rss:").or_else(|| value("/proc/self/status", "VmRSS:"))
}

/// Current bytes of the program's data, without mapped files such as its code.
pub fn own() -> Option<u64> {
    value("/proc/self/smaps_rollup", "Anonymous:").or_else(|| value("/proc/self/status", "RssAnon:"))
}

/// Peak bytes since [`forget_peak`].
pub fn peak() -> Option<u64> {
    value("/proc/self/status", "VmHWM:")
}

/// Resets [`peak`].
pub fn forget_peak() -> Option<()> {
    fs::write("/proc/self/clear_refs", FORGET_PEAK).ok()
}

fn value(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_counted() {
        const BYTES: usize = 64 << 20;
        let (before, own_before) = (now().unwrap(), own().unwrap());
        let block = std::hint::black_box(vec![1_u8; BYTES]);
        let (with, own_with, peak_with) = (now().unwrap(), own().unwrap(), peak().unwrap());
        assert!(with >= before + (BYTES as u64) / 2, "{before} {with}");
        assert!(own_with >= own_before + (BYTES as u64) / 2, "{own_before} {own_with}");
        assert!(peak_with >= before + (BYTES as u64) / 2, "{before} {peak_with}");
        drop(block);
    }
}
