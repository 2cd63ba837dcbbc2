//! Downloads one object.

use std::ops::Range;
use std::os::fd::AsRawFd;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{GetOptions, GetResult, GetResultPayload};
use tokio::time::{Instant, timeout_at};

use crate::cache::{Cache, Lock};
use crate::digest::Digest;
use crate::error::Error;
use crate::key::Key;
use crate::limits::Limits;
use crate::listing::Listed;
use crate::part::{self, Part};
use crate::source::{Source, listed};

/// Bytes that are collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Attempts that make no progress before a download fails. Each already includes the retries of its request.
const ATTEMPTS_MAX: u32 = 3;

/// An attempt that downloads this much makes progress.
const PROGRESS_BYTES: u64 = 8 << 20;

/// Why a download did not end.
pub(crate) enum Failure {
    /// The object is not the listed one any more.
    Changed,
    /// Anything else.
    Failed(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A complete download.
pub(crate) struct Downloaded {
    pub digest: Digest,
    pub bytes_downloaded: u64,
    pub bytes_resumed: u64,
}

/// Answer to a request for content.
enum Answer {
    Content(BoxStream<'static, object_store::Result<Bytes>>),
    /// The server does not support requests for a part of an object.
    NoRanges,
    Failed(Error),
}

/// Downloads objects into a cache that is locked.
pub(crate) struct Downloader<'a> {
    pub source: &'a Source,
    pub cache: &'a Cache,
    pub lock: &'a Lock,
    pub limits: &'a Limits,
}

impl Downloader<'_> {
    /// Downloads an object, or the rest of it. `arrived` is told how many bytes arrived; the first call counts resumed bytes.
    ///
    /// Dropping the future keeps what has arrived.
    pub(crate) async fn download(
        &self,
        key: &Key,
        listed: &Listed,
        arrived: &(dyn Fn(i64) + Sync),
    ) -> Result<Downloaded, Failure> {
        let name = part::name(key, listed);
        let path = self.cache.parts().join(format!("{name}.part"));
        let (size, resume) = (listed.size, listed.strong_etag().is_some());
        let with_md5 = expected_md5(self.source, listed).is_some();
        let mut part = self.on_disk(&path.clone(), move || Part::open(path, size, resume, with_md5)).await?;
        let bytes_resumed = part.len();
        arrived(signed(bytes_resumed));
        let mut bytes_downloaded = 0;
        let mut attempts = 0;
        while part.len() < listed.size {
            let before = part.len();
            let error;
            (part, error) = self.attempt(key, listed, part, arrived).await?;
            let gained = part.len().saturating_sub(before);
            bytes_downloaded += gained;
            let Some(error) = error else { continue };
            attempts = if gained >= PROGRESS_BYTES { 1 } else { attempts + 1 };
            if attempts >= ATTEMPTS_MAX {
                return Err(error.into());
            }
            if !resume {
                arrived(-signed(part.len()));
                part = self.changed_part(part, Part::clear).await?;
            }
            tokio::time::sleep(self.limits.retry_delay * attempts).await;
        }
        let digest = self.store(key, listed, part, name).await?;
        Ok(Downloaded { digest, bytes_downloaded, bytes_resumed })
    }

    /// One request. Returns the part with what arrived, and the error that ended the request early.
    async fn attempt(
        &self,
        key: &Key,
        listed: &Listed,
        mut part: Part,
        arrived: &(dyn Fn(i64) + Sync),
    ) -> Result<(Part, Option<Error>), Failure> {
        let deadline = Instant::now() + self.limits.attempt_timeout(listed.size - part.len());
        let mut stream = match self.request(key, listed, part.len(), deadline).await? {
            Answer::Content(stream) => stream,
            Answer::NoRanges => {
                arrived(-signed(part.len()));
                return Ok((self.changed_part(part, Part::clear).await?, None));
            }
            Answer::Failed(error) => return Ok((part, Some(error))),
        };
        let mut chunks: Vec<Bytes> = Vec::new();
        let mut pending = 0;
        let mut ended = false;
        let mut error = None;
        while !ended {
            let stalled = Instant::now() + self.limits.answer_timeout();
            match timeout_at(stalled.min(deadline), stream.next()).await {
                Ok(Some(Ok(bytes))) => {
                    pending += bytes.len();
                    chunks.push(bytes);
                }
                Ok(None) => ended = true,
                Ok(Some(Err(failed))) => error = Some(self.failed(key, failed)),
                Err(_) => {
                    error = Some(self.source.unavailable(&format!("`{key}`: the download is too slow")))
                }
            }
            ended |= error.is_some();
            if part.len() + pending as u64 > listed.size {
                return Err(Failure::Changed);
            }
            if pending >= WRITE_BYTES || (ended && pending > 0) {
                let writing = std::mem::take(&mut chunks);
                part = self.changed_part(part, move |part| part.append(&writing)).await?;
                arrived(signed(pending as u64));
                pending = 0;
            }
        }
        if error.is_none() && part.len() < listed.size {
            let reason =
                format!("`{key}`: expected {} bytes, the download ended after {}", listed.size, part.len());
            error = Some(self.source.unavailable(&reason));
        }
        Ok((part, error))
    }

    /// Requests an object from an offset, and checks that it is the listed one.
    async fn request(
        &self,
        key: &Key,
        listed_then: &Listed,
        offset: u64,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let options = GetOptions {
            if_match: listed_then.strong_etag().map(|etag| self.if_match(etag)),
            version: listed_then.version.clone(),
            range: (offset > 0).then_some(Range { start: offset, end: listed_then.size }.into()),
            ..GetOptions::default()
        };
        let path = self.source.path(key)?;
        let answer = timeout_at(
            deadline.min(Instant::now() + self.limits.answer_timeout()),
            self.source.store.get_opts(&path, options),
        );
        let result = match answer.await {
            Err(_) => {
                return Ok(Answer::Failed(self.source.unavailable(&format!("`{key}`: no answer in time"))));
            }
            Ok(Err(object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. })) => {
                return Err(Failure::Changed);
            }
            Ok(Err(object_store::Error::NotSupported { .. })) if offset > 0 => return Ok(Answer::NoRanges),
            Ok(Err(error)) => return Ok(Answer::Failed(self.failed(key, error))),
            Ok(Ok(result)) => result,
        };
        if !listed_then.has_content_of(&listed(&result.meta)) || result.range != (offset..listed_then.size) {
            return Err(Failure::Changed);
        }
        self.check_confined(key, &result)?;
        Ok(Answer::Content(result.into_stream()))
    }

    fn if_match(&self, etag: &str) -> String {
        let quote = self.source.lists_bare_etags && !etag.starts_with('"');
        if quote { format!("\"{etag}\"") } else { etag.to_owned() }
    }

    /// A local file must not be a link that leaves the repository. The open file is asked, not its name.
    fn check_confined(&self, key: &Key, result: &GetResult) -> Result<(), Error> {
        let (Some(folder), GetResultPayload::File(file, path)) = (&self.source.folder, &result.payload)
        else {
            return Ok(());
        };
        let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let real = real.or_else(|_| path.canonicalize()).map_err(|error| Error::cache(path, &error))?;
        if real.starts_with(folder) {
            return Ok(());
        }
        let (url, key) = (self.source.url().to_owned(), key.to_string());
        Err(Error::Key { url, key, reason: "is a link that leaves the repository".to_owned() })
    }

    /// Checks a complete download and moves it to the other content.
    async fn store(&self, key: &Key, listed: &Listed, part: Part, name: String) -> Result<Digest, Failure> {
        let path = part.path().to_owned();
        let (source, cache) = (self.source.clone(), self.cache.clone());
        let expected = expected_md5(self.source, listed);
        let key = key.clone();
        let file = path.clone();
        let finish = move || -> std::io::Result<Result<Digest, Error>> {
            let finished = part.finish()?;
            if let (Some(expected), Some(got)) = (expected, finished.md5)
                && expected != got
            {
                std::fs::remove_file(&file)?;
                let (url, key) = (source.url().to_owned(), key.to_string());
                return Ok(Err(Error::Checksum { url, key, expected, got }));
            }
            cache.blobs().adopt(&file, finished.digest)?;
            cache.record_finished(&name, finished.digest)?;
            Ok(Ok(finished.digest))
        };
        Ok(self.on_disk(&path, finish).await??)
    }

    async fn changed_part(
        &self,
        mut part: Part,
        change: impl FnOnce(&mut Part) -> std::io::Result<()> + Send + 'static,
    ) -> Result<Part, Error> {
        let path = part.path().to_owned();
        self.on_disk(&path, move || change(&mut part).map(|()| part)).await
    }

    /// Runs blocking work on a file.
    async fn on_disk<T: Send + 'static>(
        &self,
        path: &std::path::Path,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let path = path.to_owned();
        self.lock.run(move || work().map_err(|error| Error::cache(&path, &error))).await
    }

    fn failed(&self, key: &Key, error: object_store::Error) -> Error {
        match self.source.failed(error) {
            Error::Unavailable { url, reason } => {
                Error::Unavailable { url, reason: format!("`{key}`: {reason}") }
            }
            error => error,
        }
    }
}

/// The MD5 that an object must have. Only if the operator says that ETags are MD5s, and if this one can be: an upload in parts has
/// an ETag with a `-`.
fn expected_md5(source: &Source, listed: &Listed) -> Option<String> {
    let etag = listed.strong_etag().filter(|_| source.etag_is_md5)?.trim_matches('"');
    let is_md5 = etag.len() == 32 && etag.bytes().all(|b| b.is_ascii_hexdigit());
    is_md5.then(|| etag.to_ascii_lowercase())
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
