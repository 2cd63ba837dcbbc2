//! A store that fails as told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What happens to the next request for content.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    None,
    /// The connection breaks after some bytes.
    Break(usize),
    /// The content ends after some bytes, without an error.
    Short(usize),
    /// The content never arrives.
    Stall,
    /// The object gets another content before the request.
    Change(Path, &'static str),
    /// The object is deleted before the request.
    Delete(Path),
}

/// Content by key.
pub(super) type State = BTreeMap<String, Vec<u8>>;

/// A store that fails as told.
pub(super) struct Faulty {
    pub(super) inner: Arc<InMemory>,
    faults: Mutex<VecDeque<Fault>>,
    hidden: Mutex<BTreeSet<String>>,
    /// Content at each listing.
    listed: Mutex<Vec<State>>,
    down: AtomicBool,
}

impl Faulty {
    pub(super) fn new(inner: InMemory) -> Self {
        Self {
            inner: Arc::new(inner),
            faults: Mutex::default(),
            hidden: Mutex::default(),
            listed: Mutex::default(),
            down: AtomicBool::new(false),
        }
    }

    pub(super) fn push(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub(super) fn clear(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(super) fn fail_always(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    /// Leaves an object out of listings.
    pub(super) fn hide(&self, key: &str, hidden: bool) {
        let mut all = self.hidden.lock().unwrap();
        if hidden {
            all.insert(key.to_owned())
        } else {
            all.remove(key)
        };
    }

    /// The content at each listing so far.
    pub(super) fn listed(&self) -> Vec<State> {
        self.listed.lock().unwrap().clone()
    }

    /// The content now. Requests to a store in memory end at once.
    pub(super) fn state(&self, prefix: &Path) -> State {
        let objects = self.inner.list(Some(prefix)).try_collect::<Vec<_>>().now_or_never().unwrap().unwrap();
        let read = |path: &Path| {
            let content = async { self.inner.get(path).await?.bytes().await };
            content.now_or_never().unwrap().unwrap().to_vec()
        };
        let key = |path: &Path| path.as_ref().strip_prefix(&format!("{prefix}/")).unwrap().to_owned();
        objects.iter().map(|object| (key(&object.location), read(&object.location))).collect()
    }

    async fn content(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        if self.down.load(Ordering::Relaxed) {
            return Err(broken());
        }
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
        match &fault {
            Fault::Change(path, content) => {
                self.inner.put(path, Bytes::from_static(content.as_bytes()).into()).await?;
            }
            Fault::Delete(path) => {
                let _ = self.inner.delete(path).await;
            }
            _ => {}
        }
        let mut result = self.inner.get_opts(path, options).await?;
        let (meta, range) = (result.meta.clone(), result.range.clone());
        let some = |bytes: Bytes, count: usize| bytes.slice(..count.min(bytes.len()));
        let replaced = match fault {
            Fault::Break(count) => {
                let bytes = result.bytes().await?;
                stream::iter([Ok(some(bytes, count)), Err(broken())]).boxed()
            }
            Fault::Short(count) => stream::iter([Ok(some(result.bytes().await?, count))]).boxed(),
            Fault::Stall => stream::pending().boxed(),
            Fault::None | Fault::Change(..) | Fault::Delete(_) => return Ok(result),
        };
        result = self.inner.get(path).await?;
        Ok(GetResult { payload: GetResultPayload::Stream(replaced), meta, range, ..result })
    }
}

fn broken() -> Error {
    Error::Generic { store: "test", source: "the connection broke".into() }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

// The trait's methods are written as `async_trait` expands them.
impl ObjectStore for Faulty {
    fn put_opts<'a, 'b, 'c>(
        &'a self,
        path: &'b Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> BoxFuture<'c, Result<PutResult>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.inner.put_opts(path, payload, options)
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        path: &'b Path,
        options: PutMultipartOptions,
    ) -> BoxFuture<'c, Result<Box<dyn MultipartUpload>>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.inner.put_multipart_opts(path, options)
    }

    fn get_opts<'a, 'b, 'c>(&'a self, path: &'b Path, options: GetOptions) -> BoxFuture<'c, Result<GetResult>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.content(path, options).boxed()
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.down.load(Ordering::Relaxed) {
            return stream::iter([Err(broken())]).boxed();
        }
        self.listed.lock().unwrap().push(self.state(prefix.unwrap()));
        let hidden = self.hidden.lock().unwrap().clone();
        let shown = move |object: &ObjectMeta| std::future::ready(!hidden.contains(object.location.as_ref()));
        self.inner.list(prefix).try_filter(shown).boxed()
    }

    fn list_with_delimiter<'a, 'b, 'c>(
        &'a self,
        prefix: Option<&'b Path>,
    ) -> BoxFuture<'c, Result<ListResult>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.inner.list_with_delimiter(prefix)
    }

    fn copy_opts<'a, 'b, 'c, 'd>(
        &'a self,
        from: &'b Path,
        to: &'c Path,
        options: CopyOptions,
    ) -> BoxFuture<'d, Result<()>>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        self.inner.copy_opts(from, to, options)
    }
}
