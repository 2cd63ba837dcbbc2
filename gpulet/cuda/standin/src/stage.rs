//! Runs a test a second time, in a process whose driver library is the stand-in.
//!
//! The library path is read when a process starts, and a driver's state is the process's: every test with a driver
//! has a process of its own.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::calls::SHAPE_VARIABLE;
use crate::{Control, Shape};

/// Set in the process that loads the stand-in.
const CHILD_VARIABLE: &str = "CUDA_STANDIN_CHILD";
/// Names under which programs load the driver and the management library.
const NAMES: [&str; 3] = ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"];

/// The driver library of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The stand-in, with these GPUs.
    Standin(Shape),
    /// The stand-in without some of its symbols, like an older driver.
    Without(Shape, Vec<String>),
    /// Files with the driver's names that are not libraries.
    Broken,
}

/// Runs `body` in its own process with this driver. Must be the first call of the test whose full name is `test`, as
/// `cargo test -- --list` shows it, and called only once.
///
/// # Panics
/// The test failed in its process, or no test has that name.
#[expect(clippy::panic, reason = "a test fails by panicking, and this is called by tests only")]
pub fn staged(test: &str, driver: &Driver, body: impl FnOnce()) {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        body();
        return;
    }
    match rerun(test, driver) {
        Ok(None) => {}
        Ok(Some(output)) => panic!("`{test}` failed with the stand-in:\n{output}"),
        Err(problem) => panic!("`{test}` could not be run with the stand-in: {problem}"),
    }
}

/// Like [`staged`] with the stand-in. The body must not violate a rule of the driver or leave objects behind.
///
/// # Panics
/// Like [`staged`], and if a rule was violated or an object is left.
#[expect(clippy::panic, reason = "a test fails by panicking, and this is called by tests only")]
pub fn with_driver(test: &str, shape: Shape, body: impl FnOnce(&Control)) {
    staged(test, &Driver::Standin(shape), || {
        let control = match Control::open() {
            Ok(control) => control,
            Err(problem) => panic!("{problem}"),
        };
        body(&control);
        assert_eq!(control.violations(), Vec::<String>::new(), "rules of the driver were violated");
        assert_eq!(control.everything(), Vec::new(), "objects were left behind");
    });
}

/// Runs the test with the stand-in. Returns the output if it failed.
fn rerun(test: &str, driver: &Driver) -> io::Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    place(driver, folder.path())?;
    let mut path = OsString::from(folder.path());
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    let shape = match driver {
        Driver::Standin(shape) | Driver::Without(shape, _) => shape.to_string(),
        Driver::Broken => String::new(),
    };
    let output = Command::new(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env("LD_LIBRARY_PATH", path)
        .env(SHAPE_VARIABLE, shape)
        .env(CHILD_VARIABLE, "1")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && printed.contains(" 1 passed;") {
        return Ok(None);
    }
    Ok(Some(format!("{}\n{printed}\n{}", output.status, String::from_utf8_lossy(&output.stderr))))
}

/// The library, which cargo puts next to the test's executable.
fn library() -> io::Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let folders = executable.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("libcuda_standin.so")).find(|path| path.exists());
    found.ok_or_else(|| io::Error::other(format!("no libcuda_standin.so next to {}", executable.display())))
}

fn place(driver: &Driver, folder: &Path) -> io::Result<()> {
    let bytes = match driver {
        Driver::Standin(_) => None,
        Driver::Without(_, symbols) => Some(without(std::fs::read(library()?)?, symbols)),
        Driver::Broken => Some(b"no library".to_vec()),
    };
    for name in NAMES {
        let path = folder.join(name);
        match &bytes {
            None => std::os::unix::fs::symlink(library()?, path)?,
            Some(bytes) => std::fs::write(path, bytes)?,
        }
    }
    Ok(())
}

/// Renames symbols in the bytes of a library. The loader finds a symbol by the hash of its name and then compares the
/// name, so neither the old nor the new name is found.
fn without(mut library: Vec<u8>, symbols: &[String]) -> Vec<u8> {
    for symbol in symbols {
        let name: Vec<u8> = std::iter::once(0).chain(symbol.bytes()).chain([0]).collect();
        let found: Vec<usize> = library
            .windows(name.len())
            .enumerate()
            .filter(|(_, seen)| *seen == name)
            .map(|(at, _)| at)
            .collect();
        for at in found {
            if let Some(last) = library.get_mut(at + name.len() - 2) {
                *last = b'~';
            }
        }
    }
    library
}
