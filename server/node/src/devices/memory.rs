//! Memory that plans may use for sessions.

use std::fs;

/// Memory reserved for the rest of the process and the machine: a twentieth, and at least 1 GiB.
const RESERVE: u64 = 1 << 30;
const RESERVE_OF: u64 = 20;

/// Bytes for models: memory of the machine, or of this process's control group, less the reserve. Unlimited if neither is
/// known.
pub fn for_models() -> u64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = machine(&read("/proc/meminfo"));
    let group = group(&read("/sys/fs/cgroup/memory.max"));
    let Some(all) = machine.into_iter().chain(group).min() else { return u64::MAX };
    all.saturating_sub((all / RESERVE_OF).max(RESERVE))
}

fn machine(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    rest.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

fn group(limit: &str) -> Option<u64> {
    limit.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_the_group_say_how_much_there_is() {
        assert_eq!(machine("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!((machine(""), group("max\n"), group("4096\n")), (None, None, Some(4096)));
        assert!(for_models() > 0);
    }
}
