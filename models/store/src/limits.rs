//! Limits of a mirror.

use std::time::Duration;

/// Limits of a mirror. Every resource that a source could exhaust has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the cache may hold after a refresh. The current snapshot must fit; content of older ones fills the rest. While a
    /// refresh runs, the cache also holds the snapshot that it replaces.
    pub bytes_max: u64,
    /// Objects that the source may list.
    pub objects_max: usize,
    /// Downloads that run at the same time, 1 or more.
    pub downloads_max: usize,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Longest time without a byte from the source before a request is tried again.
    pub stall_timeout: Duration,
    /// Longest time that a failed request is tried again.
    pub retry_timeout: Duration,
    /// How often a failed request is tried again.
    pub retries_max: usize,
    /// Wait before an interrupted download continues; longer after each attempt without progress.
    pub retry_delay: Duration,
    /// Slowest acceptable download. A slower one is interrupted and resumed.
    pub bytes_per_second_min: u64,
    /// Listings of one refresh. Another one is needed when an object changes between listing and download.
    pub listings_max: usize,
    /// Longest wait for another process that refreshes the same cache.
    pub lock_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 30,
            objects_max: 100_000,
            downloads_max: 8,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            retry_timeout: Duration::from_secs(60),
            retries_max: 5,
            retry_delay: Duration::from_millis(500),
            bytes_per_second_min: 64 << 10,
            listings_max: 5,
            lock_timeout: Duration::from_secs(600),
        }
    }
}

impl Limits {
    /// Longest wait for one answer, including its retries.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.retry_timeout + self.connect_timeout + self.stall_timeout * 2
    }

    /// Longest time for one attempt to download a number of bytes.
    pub(crate) fn attempt_timeout(&self, bytes: u64) -> Duration {
        self.answer_timeout() + Duration::from_secs(bytes / self.bytes_per_second_min.max(1))
    }
}
