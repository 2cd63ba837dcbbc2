//! Keeps a local copy of a repository up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::SystemTime;

use futures_util::{StreamExt, stream};

use crate::cache::{Cache, Lock};
use crate::digest::Digest;
use crate::download::{Downloaded, Downloader, Failure};
use crate::error::Error;
use crate::eviction::{Keep, evict};
use crate::key::Key;
use crate::limits::Limits;
use crate::listing::{Listed, Listing};
use crate::location::Location;
use crate::manifest::{Entry, Manifest};
use crate::part;
use crate::publication::publish;
use crate::report::{Progress, RefreshReport, Transfer};
use crate::snapshot::Snapshot;
use crate::source::Source;

/// A local copy of a repository. Several processes may have mirrors of one source in one cache folder.
#[derive(Debug)]
pub struct Mirror {
    source: Source,
    cache: Cache,
    limits: Limits,
}

/// A snapshot, and whether it is up to date.
#[derive(Debug)]
pub struct Latest {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Whether it is up to date.
    pub freshness: Freshness,
}

/// Whether a snapshot is up to date.
#[derive(Debug)]
pub enum Freshness {
    /// It is what the source listed just now.
    Fresh(RefreshReport),
    /// The refresh failed, and this is the last complete snapshot. `Manifest::listed_at` says how old it is.
    Stale(Error),
}

/// Which content of a listing is in the cache.
#[derive(Default)]
struct Plan {
    present: BTreeMap<Key, Digest>,
    missing: Vec<(Key, Listed)>,
    bytes_evicted: u64,
}

impl Plan {
    fn new(cache: &Cache, listing: &Listing) -> Self {
        let known = cache.known();
        let mut plan = Self::default();
        for (key, listed) in listing.objects() {
            let from_manifest = |manifest: &Manifest| {
                let entry = manifest.objects.get(key)?;
                entry.listed.has_content_of(listed).then_some(entry.digest)
            };
            let is_there = |digest: &Digest| cache.blobs().contains(*digest, listed.size);
            let digest = known.iter().filter_map(from_manifest).find(is_there);
            let digest = digest.or_else(|| cache.finished(&part::name(key, listed)).filter(is_there));
            match digest {
                Some(digest) => {
                    plan.present.insert(key.clone(), digest);
                }
                None => plan.missing.push((key.clone(), listed.clone())),
            }
        }
        plan
    }
}

/// Sums over the listings of one refresh.
#[derive(Default)]
struct Totals {
    bytes_downloaded: u64,
    bytes_resumed: u64,
    bytes_evicted: u64,
}

impl Mirror {
    /// Opens a cache folder, which is created if it does not exist. Sends no request.
    ///
    /// # Errors
    /// If the folder cannot be used or belongs to another source, or if the store refuses an option.
    pub fn open(location: &Location, folder: &Path, limits: Limits) -> Result<Self, Error> {
        let source = Source::open(location, &limits)?;
        Self::with_source(source, folder, limits)
    }

    pub(crate) fn with_source(source: Source, folder: &Path, limits: Limits) -> Result<Self, Error> {
        let cache = Cache::open(folder, source.url())?;
        Ok(Self { source, cache, limits })
    }

    /// The last complete snapshot, without asking the source. None before the first refresh.
    ///
    /// # Errors
    /// If the cache folder cannot be read.
    pub fn current(&self) -> Result<Option<Snapshot>, Error> {
        self.cache.current()
    }

    /// Refreshes. If that fails, the last complete snapshot is returned with the error, so that a server can start while the source
    /// is down.
    ///
    /// # Errors
    /// If the refresh fails and there is no complete snapshot.
    pub async fn latest(&self, progress: &dyn Progress) -> Result<Latest, Error> {
        let freshness = match self.refresh(progress).await {
            Ok(report) => Freshness::Fresh(report),
            Err(error) => Freshness::Stale(error),
        };
        match (self.current()?, freshness) {
            (Some(snapshot), freshness) => Ok(Latest { snapshot, freshness }),
            (None, Freshness::Stale(error)) => Err(error),
            (None, Freshness::Fresh(_)) => Err(Error::Cache {
                path: self.cache.link(),
                reason: "the snapshot was removed from outside".to_owned(),
            }),
        }
    }

    /// Makes what the source lists now the current snapshot. Downloads only content that is not in the cache. If it fails, or is
    /// dropped, the current snapshot stays, and the next refresh continues interrupted downloads.
    ///
    /// # Errors
    /// If the source cannot be listed or read, if a key is not safe, if a limit is exceeded, or if the cache cannot be written.
    pub async fn refresh(&self, progress: &dyn Progress) -> Result<RefreshReport, Error> {
        let lock = self.cache.lock(self.limits.lock_timeout).await?;
        let before = self.cache.current()?;
        let mut totals = Totals::default();
        let mut changed = None;
        for listings in 1..=self.limits.listings_max.max(1) {
            let listed_at = seconds_since_1970();
            let listing = self.source.list(&self.limits).await?;
            self.check_size(&listing)?;
            let plan = self.plan(&listing, before.as_ref(), &lock).await?;
            totals.bytes_evicted += plan.bytes_evicted;
            match self.fetch(&plan, &lock, &mut totals, progress).await {
                Ok(fetched) => {
                    let objects = entries(&listing, &plan, &fetched);
                    let manifest = Manifest { listed_at, objects };
                    let reused = plan.present.keys().filter_map(|key| listing.objects().get(key));
                    let bytes_reused = reused.map(|listed| listed.size).sum();
                    let report = RefreshReport { listings, bytes_reused, ..RefreshReport::default() };
                    let report = RefreshReport {
                        bytes_downloaded: totals.bytes_downloaded,
                        bytes_resumed: totals.bytes_resumed,
                        bytes_evicted: totals.bytes_evicted,
                        ..report
                    };
                    let (cache, bytes_max) = (self.cache.clone(), self.limits.bytes_max);
                    return lock.run(move || switch(&cache, manifest, before, report, bytes_max)).await;
                }
                Err((key, Failure::Changed)) => {
                    lock.settle().await;
                    changed = Some(key);
                }
                Err((_, Failure::Failed(error))) => return Err(error),
            }
        }
        let key = changed.map(|key| key.to_string()).unwrap_or_default();
        Err(Error::Changing { url: self.source.url().to_owned(), key, listings: self.limits.listings_max })
    }

    fn check_size(&self, listing: &Listing) -> Result<(), Error> {
        let (bytes, bytes_max) = (listing.bytes(), self.limits.bytes_max);
        if bytes > bytes_max {
            return Err(Error::TooLarge { url: self.source.url().to_owned(), bytes, bytes_max });
        }
        Ok(())
    }

    /// Finds out which content is in the cache, and evicts old content so that the rest fits.
    async fn plan(&self, listing: &Listing, before: Option<&Snapshot>, lock: &Lock) -> Result<Plan, Error> {
        let (cache, listing, bytes_max) = (self.cache.clone(), listing.clone(), self.limits.bytes_max);
        let current = before.map(Snapshot::shared_manifest);
        lock.run(move || {
            let mut plan = Plan::new(&cache, &listing);
            let bytes_missing: u64 = plan.missing.iter().map(|(_, listed)| listed.size).sum();
            let digests = plan.present.values().copied().collect();
            let parts = listing.objects().iter().map(|(key, listed)| part::name(key, listed)).collect();
            let keep = Keep { current, digests, parts };
            plan.bytes_evicted = evict(&cache, &keep, bytes_max.saturating_sub(bytes_missing))?.bytes_evicted;
            Ok(plan)
        })
        .await
    }

    /// Downloads what is missing.
    async fn fetch(
        &self,
        plan: &Plan,
        lock: &Lock,
        totals: &mut Totals,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<Key, Digest>, (Key, Failure)> {
        let downloader = Downloader { source: &self.source, cache: &self.cache, lock, limits: &self.limits };
        let bytes = plan.missing.iter().map(|(_, listed)| listed.size).sum();
        let bytes_done = AtomicI64::new(0);
        let objects_done = AtomicUsize::new(0);
        let objects = plan.missing.len();
        let update = || {
            progress.update(Transfer {
                objects,
                objects_done: objects_done.load(Ordering::Relaxed),
                bytes,
                bytes_done: u64::try_from(bytes_done.load(Ordering::Relaxed)).unwrap_or(0),
            });
        };
        let arrived = |bytes: i64| {
            bytes_done.fetch_add(bytes, Ordering::Relaxed);
            update();
        };
        let (downloader, arrived) = (&downloader, &arrived);
        // A closure that takes references would keep the whole future from being sent between threads.
        let downloads = plan.missing.clone().into_iter().map(|(key, listed)| async move {
            let downloaded = downloader.download(&key, &listed, arrived).await;
            (key, downloaded)
        });
        let mut downloads = stream::iter(downloads).buffer_unordered(self.limits.downloads_max.max(1));
        let mut digests = BTreeMap::new();
        while let Some((key, result)) = downloads.next().await {
            let Downloaded { digest, bytes_downloaded, bytes_resumed } =
                result.map_err(|failure| (key.clone(), failure))?;
            digests.insert(key, digest);
            totals.bytes_downloaded += bytes_downloaded;
            totals.bytes_resumed += bytes_resumed;
            objects_done.fetch_add(1, Ordering::Relaxed);
            update();
        }
        Ok(digests)
    }
}

/// Makes a complete manifest current, and removes what is no longer needed.
fn switch(
    cache: &Cache,
    manifest: Manifest,
    before: Option<Snapshot>,
    report: RefreshReport,
    bytes_max: u64,
) -> Result<RefreshReport, Error> {
    publish(cache, &manifest)?;
    let mut report = RefreshReport {
        snapshot: manifest.id(),
        objects: manifest.objects.len(),
        bytes: manifest.bytes(),
        ..report
    };
    let nothing = Manifest::default();
    let old = before.as_ref().map_or(&nothing, Snapshot::manifest);
    compare(old, &manifest, &mut report);
    let used: BTreeSet<Digest> = manifest.objects.values().map(|entry| entry.digest).collect();
    for entry in old.objects.values().filter(|entry| !used.contains(&entry.digest)) {
        cache.blobs().touch(entry.digest).map_err(|error| Error::cache(cache.folder(), &error))?;
    }
    // The content of a snapshot that is held is not evicted.
    drop(before);
    let keep = Keep { current: Some(Arc::new(manifest)), ..Keep::default() };
    let evicted = evict(cache, &keep, bytes_max)?;
    report.bytes_evicted += evicted.bytes_evicted;
    report.bytes_cached = evicted.bytes_cached;
    Ok(report)
}

fn entries(listing: &Listing, plan: &Plan, fetched: &BTreeMap<Key, Digest>) -> BTreeMap<Key, Entry> {
    let entry = |(key, listed): (&Key, &Listed)| {
        let digest = plan.present.get(key).or_else(|| fetched.get(key))?;
        Some((key.clone(), Entry { listed: listed.clone(), digest: *digest }))
    };
    listing.objects().iter().filter_map(entry).collect()
}

fn compare(old: &Manifest, new: &Manifest, report: &mut RefreshReport) {
    for (key, entry) in &new.objects {
        match old.objects.get(key) {
            None => report.added += 1,
            Some(before) if before.digest != entry.digest => report.changed += 1,
            Some(_) => {}
        }
    }
    report.removed = old.objects.keys().filter(|key| !new.objects.contains_key(*key)).count();
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests;
