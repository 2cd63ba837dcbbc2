//! A model repository at a URL, read from its local copy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use model_store::{Error, Freshness, Latest, Limits, Mirror, RefreshReport, Snapshot, Transfer};
use models::FolderGuard;
use models::repository::{Repository, RepositoryError};

use crate::config::{RemoteRepository, Repository as RepositoryConfig};
use crate::metrics::{repository_listed, repository_refresh_failed};

/// How often the progress of a download is logged.
const PROGRESS: Duration = Duration::from_secs(5);

/// Why models cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
    /// The folder cannot be read.
    #[error(transparent)]
    Folder(#[from] RepositoryError),
    /// The URL cannot be read, and there is no local copy.
    #[error(transparent)]
    Remote(#[from] Error),
    /// No runtime could be started.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

/// A repository at a URL, and its local copy.
pub struct Remote {
    mirror: Mirror,
    url: String,
    strict: bool,
    current: ArcSwap<LocalCopy>,
}

/// One complete copy. Its folder stays in place while this lives.
pub struct LocalCopy {
    repository: Repository,
    snapshot: Snapshot,
}

impl LocalCopy {
    fn new(snapshot: Snapshot, strict: bool) -> Result<Self, RepositoryError> {
        let repository = Repository::open(snapshot.path())?;
        let repository = if strict { repository } else { repository.lenient() };
        Ok(Self { repository, snapshot })
    }

    fn listed(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.snapshot.manifest().listed_at)
    }

    /// The folder.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Keeps the folder in place.
    pub fn guard(&self) -> FolderGuard {
        FolderGuard(Arc::new(self.snapshot.clone()))
    }
}

impl Remote {
    /// Copies what changed since the last copy. A source that cannot be reached is not an error if there is a copy: it is used, with
    /// a warning.
    ///
    /// # Errors
    /// If there is no copy, or it cannot be read.
    pub async fn connect(remote: &RemoteRepository, config: &RepositoryConfig) -> Result<Self, SourceError> {
        let limits = Limits { bytes_max: config.cache_bytes.0, ..Limits::default() };
        let mirror = Mirror::open(&remote.location, &remote.cache, limits)?;
        let url = remote.location.url().to_owned();
        let Latest { snapshot, freshness } = mirror.latest(&progress(&url)).await?;
        match freshness {
            Freshness::Fresh(report) => log(&url, &report),
            Freshness::Stale(error) => {
                tracing::warn!(%error, "the local copy of the model repository is used");
                repository_refresh_failed();
            }
        }
        let copy = LocalCopy::new(snapshot, config.strict)?;
        repository_listed(copy.listed());
        Ok(Self { mirror, url, strict: config.strict, current: ArcSwap::from_pointee(copy) })
    }

    /// Copies what changed. If that fails, the last copy stays in use.
    ///
    /// # Errors
    /// Why it failed. It is counted.
    pub async fn refresh(&self) -> Result<(), SourceError> {
        let refreshed = self.mirror.refresh(&progress(&self.url)).await;
        let refreshed = refreshed.map_err(SourceError::from).and_then(|report| {
            log(&self.url, &report);
            if let Some(snapshot) = self.mirror.current()? {
                let copy = LocalCopy::new(snapshot, self.strict)?;
                repository_listed(copy.listed());
                self.current.store(Arc::new(copy));
            }
            Ok(())
        });
        if refreshed.is_err() {
            repository_refresh_failed();
        }
        refreshed
    }

    /// The copy in use.
    pub fn current(&self) -> Arc<LocalCopy> {
        self.current.load_full()
    }
}

fn log(url: &str, report: &RefreshReport) {
    let RefreshReport { objects, bytes, bytes_downloaded, .. } = *report;
    tracing::info!(url, objects, bytes, bytes_downloaded, "model repository is current");
}

/// Logs how far a long download is.
fn progress(url: &str) -> impl Fn(Transfer) + Send + Sync {
    let (url, logged) = (url.to_owned(), Mutex::new(Instant::now()));
    move |transfer: Transfer| {
        let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.elapsed() >= PROGRESS {
            *logged = Instant::now();
            tracing::info!(
                url,
                bytes = transfer.bytes,
                bytes_done = transfer.bytes_done,
                "downloading models"
            );
        }
    }
}
