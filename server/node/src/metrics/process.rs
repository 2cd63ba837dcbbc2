//! The process: processor time, memory, files, threads.

use metrics_process::Collector;

/// Reads them, for a scrape.
pub fn process_read() {
    Collector::default().collect();
}
