//! The loaded library, and calls whose code becomes a [`DriverError`].

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use super::error::{DriverError, ErrorClass};
use super::sys::{self, Base, Code, Graphs, Green, Kernels};

/// Why the driver cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// No library of the driver's names was found.
    #[error(
        "no NVIDIA driver: libcuda.so.1 was not found (is the driver installed, and visible in this container?)"
    )]
    Missing,
    /// A library was found that lacks calls which every supported driver has.
    #[error("the NVIDIA driver library lacks {}: it is too old or not the driver's", .0.join(", "))]
    Symbols(Vec<&'static str>),
}

/// The loaded driver. A process loads it once and never unloads it.
pub struct Driver {
    pub(super) base: Base,
    green: Result<Green, Vec<&'static str>>,
    kernels: Result<Kernels, Vec<&'static str>>,
    graphs: Result<Graphs, Vec<&'static str>>,
    error_name: Option<sys::ErrorName>,
}

/// The result of a call.
pub(super) type Answer<T> = Result<T, DriverError>;

/// Makes a call and converts its code into an error that names the call. The table is that of the calls that every driver
/// has, unless another one is given. Must be in an `unsafe` block.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        call!($driver, $driver.base, $name($($argument),*))
    };
    ($driver:expr, $table:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let code = ($table.$name)($($argument),*);
        $driver.check(stringify!($name), code)
    }};
}

/// Like `call!`, for calls that write a value to the address in their first argument: takes an initial value in place of
/// the address, and returns what the driver wrote.
macro_rules! fetch {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        fetch!($driver, $driver.base, $name($($argument),*))
    };
    ($driver:expr, $table:expr, $name:ident($initial:expr $(, $argument:expr)* $(,)?)) => {{
        let mut value = $initial;
        call!($driver, $table, $name(&raw mut value $(, $argument)*)).map(|()| value)
    }};
}

pub(super) use {call, fetch};

impl Driver {
    /// Loads the library and resolves its calls. The result is kept for the life of the process.
    ///
    /// # Errors
    /// What is missing.
    pub fn load() -> Result<&'static Self, LibraryError> {
        static DRIVER: OnceLock<Result<Driver, LibraryError>> = OnceLock::new();
        let loaded = DRIVER.get_or_init(|| {
            let library = sys::library().ok_or(LibraryError::Missing)?;
            let base = Base::resolve(library).map_err(LibraryError::Symbols)?;
            let (green, kernels) = (Green::resolve(library), Kernels::resolve(library));
            let graphs = Graphs::resolve(library);
            Ok(Self { base, green, kernels, graphs, error_name: sys::error_name(library) })
        });
        loaded.as_ref().map_err(Clone::clone)
    }

    /// Calls for green contexts that the driver lacks; empty if it has all of them.
    pub fn missing_green_calls(&self) -> &[&'static str] {
        self.green.as_ref().err().map_or(&[], Vec::as_slice)
    }

    pub(super) fn check(&self, call: &'static str, code: Code) -> Answer<()> {
        if code == sys::SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// Whether work has finished, from the code of a query.
    pub(super) fn is_finished(&self, call: &'static str, code: Code) -> Answer<bool> {
        match code {
            sys::NOT_READY => Ok(false),
            code => self.check(call, code).map(|()| true),
        }
    }

    fn error(&self, call: &'static str, code: Code) -> DriverError {
        DriverError { call, code, name: self.name_of(code), class: ErrorClass::of(code) }
    }

    fn name_of(&self, code: Code) -> String {
        let mut name: *const c_char = std::ptr::null();
        if let Some(error_name) = self.error_name {
            // SAFETY: the driver writes one pointer there, or nothing.
            let _ = unsafe { error_name(code, &raw mut name) };
        }
        if name.is_null() {
            return "unnamed error".to_owned();
        }
        // SAFETY: not null, so the driver returned one of its constant strings.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    pub(super) fn green(&self) -> Answer<&Green> {
        self.green.as_ref().map_err(|missing| lacking(missing, "green contexts"))
    }

    pub(super) fn kernels(&self) -> Answer<&Kernels> {
        self.kernels.as_ref().map_err(|missing| lacking(missing, "kernels"))
    }

    pub(super) fn graphs(&self) -> Answer<&Graphs> {
        self.graphs.as_ref().map_err(|missing| lacking(missing, "graphs"))
    }
}

fn lacking(missing: &[&'static str], what: &'static str) -> DriverError {
    DriverError {
        call: missing.first().copied().unwrap_or(what),
        code: 0,
        name: "the driver does not have it".to_owned(),
        class: ErrorClass::Machine,
    }
}

/// Whether the driver refused to record because the event and the stream have different contexts.
pub(super) fn is_of_other_context(error: &DriverError) -> bool {
    matches!(error.code, sys::INVALID_CONTEXT | sys::INVALID_HANDLE)
}
