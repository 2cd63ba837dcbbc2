use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};

use super::*;
use crate::report::Silent;

mod faults;
mod sequences;

use faults::{Fault, Faulty};

/// A source in memory and a mirror of it.
struct Scene {
    store: Arc<Faulty>,
    folder: tempfile::TempDir,
    limits: Limits,
}

impl Scene {
    fn new() -> Self {
        let store = Arc::new(Faulty::new(InMemory::new()));
        // What is in memory answers when it is asked, so short limits never hit a request that makes progress.
        let limits = Limits {
            bytes_max: 1000,
            listings_max: 3,
            connect_timeout: Duration::ZERO,
            stall_timeout: Duration::from_millis(1),
            retry_timeout: Duration::ZERO,
            retry_delay: Duration::ZERO,
            ..Limits::default()
        };
        Self { store, folder: tempfile::tempdir().unwrap(), limits }
    }

    async fn put(&self, key: &str, content: impl Into<bytes::Bytes>) {
        self.store.inner.put(&StorePath::from(format!("models/{key}")), content.into().into()).await.unwrap();
    }

    async fn delete(&self, key: &str) {
        let _ = self.store.inner.delete(&StorePath::from(format!("models/{key}"))).await;
    }

    fn mirror(&self) -> Mirror {
        let source = Source::with_store(
            Arc::clone(&self.store) as Arc<dyn ObjectStore>,
            "models",
            "memory://x/models",
        );
        Mirror::with_source(source, self.folder.path(), self.limits.clone()).unwrap()
    }

    async fn refresh(&self) -> Result<RefreshReport, Error> {
        self.mirror().refresh(&Silent).await
    }

    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        self.mirror().current().unwrap().map(|snapshot| files(snapshot.path())).unwrap_or_default()
    }

    fn blobs(&self) -> usize {
        fs::read_dir(self.folder.path().join("blobs")).unwrap().count()
    }
}

/// Files of a folder by relative path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let key = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(key, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn expect(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    pairs.iter().map(|(key, content)| ((*key).to_owned(), content.as_bytes().to_vec())).collect()
}

#[tokio::test]
async fn the_snapshot_is_the_source() {
    let scene = Scene::new();
    scene.put("a/1/model.onnx", "first").await;
    scene.put("a/config.pbtxt", "").await;
    scene.put("b.onnx", "single").await;
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.added, report.changed, report.removed), (3, 0, 0));
    assert_eq!((report.bytes, report.bytes_downloaded, report.listings), (11, 11, 1));
    let all = expect(&[("a/1/model.onnx", "first"), ("a/config.pbtxt", ""), ("b.onnx", "single")]);
    assert_eq!(scene.content(), all);
}

#[tokio::test]
async fn only_changed_objects_are_downloaded() {
    let scene = Scene::new();
    scene.put("a", "aaaa").await;
    scene.put("b", "bb").await;
    scene.put("c", "c").await;
    scene.refresh().await.unwrap();
    let report = scene.refresh().await.unwrap();
    assert!(!report.is_change());
    assert_eq!((report.bytes_downloaded, report.bytes_reused), (0, 7));

    scene.put("b", "BBB").await;
    scene.delete("c").await;
    scene.put("d", "d").await;
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.added, report.changed, report.removed), (1, 1, 1));
    assert_eq!((report.bytes_downloaded, report.bytes_reused), (4, 4));
    assert_eq!(scene.content(), expect(&[("a", "aaaa"), ("b", "BBB"), ("d", "d")]));
}

#[tokio::test]
async fn equal_content_is_stored_once() {
    let scene = Scene::new();
    scene.put("a", "same").await;
    scene.put("b", "same").await;
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.bytes, report.bytes_cached), (8, 4));
    let path = scene.mirror().current().unwrap().unwrap().path().join("a");
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 3);
    assert!(fs::metadata(&path).unwrap().permissions().readonly());
}

#[tokio::test]
async fn a_reader_keeps_its_snapshot_and_others_are_removed() {
    let scene = Scene::new();
    scene.put("a", "one").await;
    scene.refresh().await.unwrap();
    let reader = scene.mirror().current().unwrap().unwrap();
    scene.put("a", "two").await;
    scene.refresh().await.unwrap();
    scene.put("a", "three").await;
    scene.refresh().await.unwrap();
    assert_eq!(files(reader.path()), expect(&[("a", "one")]));
    assert_eq!(scene.content(), expect(&[("a", "three")]));
    assert_eq!(fs::read_dir(scene.folder.path().join("snapshots")).unwrap().count(), 2);
    drop(reader);
    scene.refresh().await.unwrap();
    assert_eq!(fs::read_dir(scene.folder.path().join("snapshots")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_rollback_downloads_nothing() {
    let scene = Scene::new();
    scene.put("a", "one").await;
    scene.refresh().await.unwrap();
    scene.store.hide("models/a", true);
    scene.put("b", "two").await;
    assert_eq!(scene.refresh().await.unwrap().removed, 1);
    scene.store.hide("models/a", false);
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.added, report.bytes_downloaded, report.bytes_reused), (1, 0, 6));
}

#[tokio::test]
async fn old_content_is_evicted_and_the_current_never() {
    let mut scene = Scene::new();
    scene.limits.bytes_max = 10;
    for (content, blobs, cached) in [("1111", 1, 4), ("2222", 2, 8), ("3333", 2, 8), ("4444444444", 1, 10)] {
        scene.put("a", content).await;
        let report = scene.refresh().await.unwrap();
        assert_eq!((scene.blobs(), report.bytes_cached), (blobs, cached), "{content}");
    }
    scene.put("b", "5").await;
    let error = scene.refresh().await.unwrap_err();
    assert!(error.to_string().contains("has 11 bytes, and the limit of the cache is 10"), "{error}");
    assert_eq!(scene.content(), expect(&[("a", "4444444444")]));
}

#[tokio::test]
async fn sources_with_too_many_objects_or_none_are_refused() {
    let mut scene = Scene::new();
    scene.limits.objects_max = 2;
    assert_eq!(scene.refresh().await.unwrap_err().label(), "empty");
    for key in ["a", "b"] {
        scene.put(key, "x").await;
    }
    scene.refresh().await.unwrap();
    scene.put("c", "x").await;
    assert_eq!(scene.refresh().await.unwrap_err().label(), "too_many_objects");
    for key in ["a", "b", "c"] {
        scene.delete(key).await;
    }
    assert_eq!(scene.refresh().await.unwrap_err().label(), "empty");
    assert_eq!(scene.content(), expect(&[("a", "x"), ("b", "x")]));
}

#[tokio::test]
async fn hostile_keys_write_nothing() {
    let scene = Scene::new();
    scene.put("a", "file").await;
    scene.put("a/b", "file in a file").await;
    let error = scene.refresh().await.unwrap_err();
    assert!(error.to_string().contains("object key `a`: is both a file and the folder of `a/b`"), "{error}");
    scene.delete("a/b").await;
    scene.put(&"x".repeat(300), "long").await;
    let error = scene.refresh().await.unwrap_err();
    assert!(error.to_string().contains("300 bytes: expected at most 255"), "{error}");
    assert_eq!(scene.blobs(), 0);
    assert!(scene.mirror().current().unwrap().is_none());
}

#[tokio::test]
async fn a_folder_marker_is_not_a_file() {
    let scene = Scene::new();
    scene.put("a", "").await;
    scene.put("a/b", "content").await;
    scene.refresh().await.unwrap();
    assert_eq!(scene.content(), expect(&[("a/b", "content")]));
}

#[tokio::test]
async fn a_source_that_is_down_serves_the_last_snapshot() {
    let scene = Scene::new();
    scene.store.fail_always(true);
    let error = scene.mirror().latest(&Silent).await.unwrap_err();
    assert_eq!(error.label(), "unavailable");
    scene.store.fail_always(false);
    scene.put("a", "one").await;
    assert!(matches!(scene.mirror().latest(&Silent).await.unwrap().freshness, Freshness::Fresh(_)));
    scene.store.fail_always(true);
    let latest = scene.mirror().latest(&Silent).await.unwrap();
    assert!(matches!(latest.freshness, Freshness::Stale(Error::Unavailable { .. })));
    assert_eq!(files(latest.snapshot.path()), expect(&[("a", "one")]));
}

#[tokio::test]
async fn an_interrupted_download_resumes() {
    let scene = Scene::new();
    scene.put("a", "0123456789").await;
    scene.store.push([Fault::Break(4), Fault::Break(0), Fault::Break(0)]);
    assert_eq!(scene.refresh().await.unwrap_err().label(), "unavailable");
    // One attempt is short, the next one gets the rest.
    scene.store.push([Fault::Short(3)]);
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.bytes_resumed, report.bytes_downloaded), (4, 6));
    assert_eq!(scene.content(), expect(&[("a", "0123456789")]));
}

#[tokio::test]
async fn finished_downloads_of_a_failed_refresh_are_kept() {
    let mut scene = Scene::new();
    scene.limits.downloads_max = 1;
    scene.put("a", "first").await;
    scene.put("b", "second").await;
    scene.store.push([Fault::None, Fault::Break(0), Fault::Break(0), Fault::Break(0)]);
    scene.refresh().await.unwrap_err();
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.bytes_reused, report.bytes_downloaded), (5, 6));
}

#[tokio::test]
async fn headroom_never_comes_from_content_that_the_next_snapshot_uses() {
    let mut scene = Scene::new();
    (scene.limits.bytes_max, scene.limits.downloads_max) = (10, 1);
    scene.put("a", "1111").await;
    scene.refresh().await.unwrap();
    scene.put("a", "22222").await;
    scene.put("b", "33333").await;
    scene.store.push([Fault::None, Fault::Break(0), Fault::Break(0), Fault::Break(0)]);
    scene.refresh().await.unwrap_err();
    let report = scene.refresh().await.unwrap();
    assert_eq!((report.bytes_reused, report.bytes_downloaded, report.bytes_cached), (5, 5, 10));
    assert_eq!(scene.content(), expect(&[("a", "22222"), ("b", "33333")]));
}

#[tokio::test]
async fn an_object_that_changes_after_the_listing_is_listed_again() {
    let scene = Scene::new();
    scene.put("a", "old").await;
    scene.store.push([Fault::Change(StorePath::from("models/a"), "newer")]);
    let report = scene.refresh().await.unwrap();
    assert_eq!(report.listings, 2);
    assert_eq!(scene.content(), expect(&[("a", "newer")]));
    // The old part is not continued with the new content.
    scene.put("a", "0123456789").await;
    scene.store.push([
        Fault::Break(4),
        Fault::Break(0),
        Fault::Change(StorePath::from("models/a"), "abcdefghij"),
    ]);
    scene.refresh().await.unwrap();
    assert_eq!(scene.content(), expect(&[("a", "abcdefghij")]));
}

#[tokio::test]
async fn a_source_that_always_changes_is_an_error() {
    let scene = Scene::new();
    scene.put("a", "0").await;
    let change = |content| Fault::Change(StorePath::from("models/a"), content);
    scene.store.push([change("1"), change("2"), change("3")]);
    let error = scene.refresh().await.unwrap_err();
    assert!(error.to_string().contains("`a` changed or was not found after each of 3 listings"), "{error}");
}

#[tokio::test]
async fn a_source_that_stalls_is_an_error() {
    let scene = Scene::new();
    scene.put("a", "0123456789").await;
    scene.store.push([Fault::Stall, Fault::Stall, Fault::Stall]);
    let error = scene.refresh().await.unwrap_err();
    assert!(error.to_string().contains("too slow"), "{error}");
}

#[tokio::test]
async fn damage_is_repaired() {
    let scene = Scene::new();
    scene.put("a/b", "content").await;
    scene.refresh().await.unwrap();
    let path = scene.mirror().current().unwrap().unwrap().path().to_owned();
    fs::remove_dir_all(path.join("a")).unwrap();
    assert_eq!(scene.refresh().await.unwrap().bytes_downloaded, 0);
    assert_eq!(scene.content(), expect(&[("a/b", "content")]));
    fs::remove_dir_all(scene.folder.path().join("manifests")).unwrap();
    assert!(scene.mirror().current().unwrap().is_none());
    scene.refresh().await.unwrap();
    assert_eq!(scene.content(), expect(&[("a/b", "content")]));
}

#[tokio::test]
async fn refreshes_of_one_folder_run_one_after_the_other() {
    let mut scene = Scene::new();
    scene.put("a", "content").await;
    let (one, two) = (scene.mirror(), scene.mirror());
    let (one, two) = tokio::join!(one.refresh(&Silent), two.refresh(&Silent));
    assert_eq!(one.unwrap().bytes_downloaded + two.unwrap().bytes_downloaded, 7);

    scene.limits.lock_timeout = Duration::ZERO;
    let mirror = scene.mirror();
    let lock = mirror.cache.lock(scene.limits.lock_timeout).await.unwrap();
    assert_eq!(mirror.refresh(&Silent).await.unwrap_err().label(), "locked");
    drop(lock);
    mirror.refresh(&Silent).await.unwrap();
}

#[tokio::test]
async fn a_folder_belongs_to_one_source() {
    let scene = Scene::new();
    scene.put("a", "content").await;
    scene.refresh().await.unwrap();
    let source = Source::with_store(Arc::new(InMemory::new()), "models", "memory://y/models");
    let error = Mirror::with_source(source, scene.folder.path(), Limits::default()).unwrap_err().to_string();
    assert!(error.contains("holds memory://x/models: expected memory://y/models"), "{error}");
}

#[tokio::test]
async fn progress_reaches_the_total() {
    let scene = Scene::new();
    scene.put("a", "four").await;
    scene.put("b", "sevenxx").await;
    let last = std::sync::Mutex::new(Transfer::default());
    scene.mirror().refresh(&|transfer| *last.lock().unwrap() = transfer).await.unwrap();
    let last = *last.lock().unwrap();
    assert_eq!(last, Transfer { objects: 2, objects_done: 2, bytes: 11, bytes_done: 11 });
}

#[tokio::test]
async fn a_local_folder_is_mirrored_and_its_links_must_stay_inside() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(source.path().join("a/1")).unwrap();
    fs::write(source.path().join("a/1/model.onnx"), "model").unwrap();
    let url = format!("file://{}", source.path().display());
    let location = Location::parse(&url, &BTreeMap::new()).unwrap();
    let mirror = Mirror::open(&location, cache.path(), Limits::default()).unwrap();
    let report = mirror.refresh(&Silent).await.unwrap();
    assert_eq!((report.objects, report.bytes_downloaded), (1, 5));
    assert_eq!(mirror.refresh(&Silent).await.unwrap().bytes_downloaded, 0);

    std::os::unix::fs::symlink("/etc/hostname", source.path().join("a/config.pbtxt")).unwrap();
    let error = mirror.refresh(&Silent).await.unwrap_err().to_string();
    assert!(error.contains("`a/config.pbtxt`: is a link that leaves the repository"), "{error}");
}

#[tokio::test]
async fn a_server_may_refresh_in_any_task() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("m.onnx"), "model").unwrap();
    let url = format!("file://{}", source.path().display());
    let location = Location::parse(&url, &BTreeMap::new()).unwrap();
    let mirror = Mirror::open(&location, cache.path(), Limits::default()).unwrap();
    let refreshed = tokio::spawn(async move { mirror.refresh(&|_: Transfer| {}).await.unwrap().objects });
    assert_eq!(refreshed.await.unwrap(), 1);
}
