//! What is durable of all jobs, in an embedded database.

use std::path::Path;

use job_core::JobId;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::JobError;
use crate::record::Record;

/// Records as JSON by number.
const JOBS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("jobs");
/// The next number, under the key 0.
const NUMBERS: TableDefinition<'_, u64, u64> = TableDefinition::new("numbers");

#[derive(Debug)]
pub(crate) struct Journal(Database);

fn told(error: impl std::fmt::Display) -> JobError {
    JobError::Journal(error.to_string())
}

impl Journal {
    /// Opens or creates the journal. Only one process at a time can.
    pub fn open(path: &Path) -> Result<Self, JobError> {
        let database =
            Database::create(path).map_err(|error| told(format!("{}: {error}", path.display())))?;
        let begun = database.begin_write().map_err(told)?;
        begun.open_table(JOBS).map_err(told)?;
        begun.open_table(NUMBERS).map_err(told)?;
        begun.commit().map_err(told)?;
        Ok(Self(database))
    }

    /// Every record, by number.
    pub fn all(&self) -> Result<Vec<Record>, JobError> {
        let reading = self.0.begin_read().map_err(told)?;
        let jobs = reading.open_table(JOBS).map_err(told)?;
        let read = |entry: Result<
            (redb::AccessGuard<'_, u64>, redb::AccessGuard<'_, &[u8]>),
            redb::StorageError,
        >| {
            let (id, record) = entry.map_err(told)?;
            serde_json::from_slice(record.value())
                .map_err(|error| told(format!("job {}: {error}", id.value())))
        };
        jobs.iter().map_err(told)?.map(read).collect()
    }

    /// A number that no job had before, also after all jobs were removed.
    pub fn take_number(&self) -> Result<JobId, JobError> {
        let writing = self.0.begin_write().map_err(told)?;
        let number = {
            let mut numbers = writing.open_table(NUMBERS).map_err(told)?;
            let number = numbers.get(0).map_err(told)?.map_or(1, |next| next.value());
            numbers.insert(0, number.saturating_add(1)).map_err(told)?;
            number
        };
        writing.commit().map_err(told)?;
        Ok(JobId(number))
    }

    /// Makes a record durable.
    pub fn write(&self, record: &Record) -> Result<(), JobError> {
        let bytes = serde_json::to_vec(record).map_err(told)?;
        let writing = self.0.begin_write().map_err(told)?;
        writing.open_table(JOBS).map_err(told)?.insert(record.id.0, bytes.as_slice()).map_err(told)?;
        writing.commit().map_err(told)
    }

    /// Forgets a job.
    pub fn remove(&self, id: JobId) -> Result<(), JobError> {
        let writing = self.0.begin_write().map_err(told)?;
        writing.open_table(JOBS).map_err(told)?.remove(id.0).map_err(told)?;
        writing.commit().map_err(told)
    }
}
