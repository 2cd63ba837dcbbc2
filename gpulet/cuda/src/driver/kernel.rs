//! Our own kernels, from PTX text that the driver compiles when it loads it.

use std::ffi::CStr;
use std::sync::Arc;

use super::error::DriverError;
use super::primary::Primary;
use super::sys::{CUfunction, CUmodule};

/// A loaded module. Its kernels keep it loaded.
pub struct Module {
    raw: CUmodule,
    primary: Arc<Primary>,
}

// SAFETY: the driver lets any threads use a module at the same time; we never follow the pointer.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles and loads PTX text. May wait for all work on the device.
    ///
    /// # Errors
    /// The driver failed, for example because the text does not compile or is for newer GPUs.
    pub fn load(primary: &Arc<Primary>, ptx: &CStr) -> Result<Arc<Self>, DriverError> {
        primary.enter()?;
        let raw = primary.driver().load_module(ptx)?;
        Ok(Arc::new(Self { raw, primary: Arc::clone(primary) }))
    }

    /// The kernel with this name.
    ///
    /// # Errors
    /// The module does not have it.
    pub fn kernel(self: &Arc<Self>, name: &CStr) -> Result<Kernel, DriverError> {
        // SAFETY: the module is loaded while this exists.
        let raw = unsafe { self.primary.driver().function(self.raw, name) }?;
        Ok(Kernel { raw, _module: Arc::clone(self) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: its kernels kept this alive, and callers keep a kernel until it has finished. An error here cannot be
        // handled.
        let _ = self.primary.enter().and_then(|()| unsafe { self.primary.driver().unload_module(self.raw) });
    }
}

/// A kernel of a module.
#[derive(Clone)]
pub struct Kernel {
    raw: CUfunction,
    _module: Arc<Module>,
}

// SAFETY: as for its module.
unsafe impl Send for Kernel {}
// SAFETY: as for its module.
unsafe impl Sync for Kernel {}

impl Kernel {
    pub(super) fn raw(&self) -> CUfunction {
        self.raw
    }
}
