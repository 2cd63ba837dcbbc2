//! Memory of this process that lies in RAM, as the kernel counts it. Every answer is `None` where it does not.

use std::fs;

/// What `clear_refs` takes to forget the highest value until now.
const FORGET_PEAK: &str = "5";

/// Bytes now; large blocks that were freed and not given back count.
pub fn now() -> Option<u64> {
    // The rollup counts pages; the status adds up counters of each core that lag behind.
    value("/proc/self/smaps_rollup", "Rss:").or_else(|| value("/proc/self/status", "VmRSS:"))
}

/// Bytes of the program's own data now, without what is read from files as it is needed, such as its code.
pub fn own() -> Option<u64> {
    value("/proc/self/smaps_rollup", "Anonymous:").or_else(|| value("/proc/self/status", "RssAnon:"))
}

/// Most bytes since [`forget_peak`].
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
