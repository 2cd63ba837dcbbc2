//! A model repository at a URL, kept as a local folder.
//!
//! A [`Location`] names the source: S3, Google Cloud Storage, Azure Blob Storage, WebDAV or a folder. A [`Mirror`] copies its
//! objects into a cache folder and publishes *snapshots*: plain folders of hard links with the layout of the source. Readers open
//! the folder of a [`Snapshot`] like any local repository.
//!
//! A snapshot is complete or does not exist. Every object in it is exactly the object of one listing of the source:
//!
//! 1. [`Mirror::refresh`] lists the source, and refuses the listing as a whole if a key is not safe as a path.
//! 2. It downloads the objects whose content is not in the cache. Requests carry `If-Match` with the listed ETag, so an object that
//!    changed after the listing is never mixed in; the source is then listed again.
//! 3. Content is stored under its SHA-256, computed while it is written. An interrupted download resumes where it stopped.
//! 4. The snapshot is built next to the current one, written to disk, and published by an atomic rename of a symbolic link.
//! 5. Content that no snapshot uses is evicted, least recently used first, until the cache is within its limit.
//!
//! **What is checked.** The size of every object, its ETag and version before and during the download, and, if the option
//! `etag_is_md5` is set, its MD5. Without that option no checksum of the store is compared: an S3 ETag is the MD5 of the content
//! only for objects that were uploaded in one part without KMS or customer keys, and object stores report nothing else in a
//! listing. TLS protects the transfer.
//!
//! **What is not atomic.** Object stores have no transaction over several objects. Upload the files of a version in an order that
//! is valid at each step, for example weights before the `model.onnx` that refers to them.

#![forbid(unsafe_code)]

mod atomic_file;
mod blobs;
mod cache;
mod digest;
mod download;
mod error;
mod eviction;
mod key;
mod limits;
mod listing;
mod location;
mod manifest;
mod mirror;
mod part;
mod publication;
mod redaction;
mod report;
mod snapshot;
mod source;

pub use digest::Digest;
pub use error::Error;
pub use key::Key;
pub use limits::Limits;
pub use listing::Listed;
pub use location::{Location, LocationError, Scheme};
pub use manifest::{Entry, Manifest};
pub use mirror::{Freshness, Latest, Mirror};
pub use redaction::is_secret;
pub use report::{Progress, RefreshReport, Silent, Transfer};
pub use snapshot::Snapshot;
