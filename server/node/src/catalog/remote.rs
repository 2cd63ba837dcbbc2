//! A model repository at a URL, read from its local copy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use arc_swap::ArcSwap;
use model_store::{Error, Freshness, Latest, Limits, Location, Mirror, RefreshReport, Snapshot, Transfer};
use models::FolderGuard;
use models::repository::{Repository, RepositoryError};

use crate::config::Repository as RepositoryConfig;
use crate::metrics::{repository_listed, repository_refresh_failed};

/// How often the progress of a download is logged.
const PROGRESS: Duration = Duration::from_secs(5);

/// Why models cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
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
        repository_listed(UNIX_EPOCH + Duration::from_secs(snapshot.manifest().listed_at));
        Ok(Self { repository, snapshot })
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
    pub async fn connect(location: &Location, config: &RepositoryConfig) -> Result<Self, SourceError> {
        let limits = Limits { bytes_max: config.cache_bytes.0, ..Limits::default() };
        let mirror = Mirror::open(location, config.cache.as_deref().unwrap_or("".as_ref()), limits)?;
        let url = location.url().to_owned();
        let Latest { snapshot, freshness } = mirror.latest(&progress(&url)).await?;
        match freshness {
            Freshness::Fresh(report) => log(&url, &report),
            Freshness::Stale(error) => {
                let listed = seconds_since(snapshot.manifest().listed_at);
                tracing::warn!(%error, listed_seconds_ago = listed, "the local copy of the model repository is used");
                repository_refresh_failed();
            }
        }
        let current = ArcSwap::from_pointee(LocalCopy::new(snapshot, config.strict)?);
        Ok(Self { mirror, url, strict: config.strict, current })
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
                self.current.store(Arc::new(LocalCopy::new(snapshot, self.strict)?));
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

fn seconds_since(time: u64) -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs().saturating_sub(time))
}
