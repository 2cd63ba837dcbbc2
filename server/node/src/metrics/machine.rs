//! Triton's gauges of the machine: use of its cores and memory, from `/proc`.

use std::fs;

use metrics::Gauge;

use super::names;

/// Gauges of the machine.
pub struct MachineMetrics {
    utilization: Gauge,
    memory_total: Gauge,
    memory_used: Gauge,
    /// Busy and total time of all cores at the last update.
    last: Option<(u64, u64)>,
}

impl MachineMetrics {
    /// Registers the gauges.
    pub fn new() -> Self {
        Self {
            utilization: metrics::gauge!(names::NV_CPU_UTILIZATION.name),
            memory_total: metrics::gauge!(names::NV_CPU_MEMORY_TOTAL.name),
            memory_used: metrics::gauge!(names::NV_CPU_MEMORY_USED.name),
            last: None,
        }
    }

    /// Reads the machine. What cannot be read becomes `NaN`.
    pub fn update(&mut self) {
        let times = fs::read_to_string("/proc/stat").ok().and_then(|text| core_times(&text));
        let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text));
        let used = times.zip(self.last).and_then(|((busy, all), (busy_before, all_before))| {
            let passed = all.checked_sub(all_before).filter(|passed| *passed > 0)?;
            Some(busy.saturating_sub(busy_before) as f64 / passed as f64)
        });
        self.utilization.set(used.unwrap_or(f64::NAN));
        self.memory_total.set(memory.map_or(f64::NAN, |(total, _)| total as f64));
        self.memory_used.set(memory.map_or(f64::NAN, |(_, used)| used as f64));
        self.last = times;
    }
}

impl Default for MachineMetrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Busy and total ticks of all cores.
fn core_times(stat: &str) -> Option<(u64, u64)> {
    let ticks = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = ticks.map_while(|word| word.parse().ok()).take(8).collect();
    let all = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (ticks.len() == 8).then(|| (u64::saturating_sub(all, idle), all))
}

/// Total and used bytes of memory.
fn memory(meminfo: &str) -> Option<(u64, u64)> {
    let kibibytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let total = kibibytes("MemTotal:")?;
    Some((total, total.saturating_sub(kibibytes("MemAvailable:")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_as_the_kernel_writes_it() {
        let stat = "cpu  10 1 5 80 4 0 0 0 0 0\ncpu0 10 1 5 80 4 0 0 0 0 0\n";
        assert_eq!(core_times(stat), Some((16, 100)));
        assert_eq!(core_times("intr 1"), None);
        let meminfo = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n";
        assert_eq!(memory(meminfo), Some((1_024_000, 614_400)));
        assert_eq!(memory("MemTotal: many kB\n"), None);
    }
}
