//! Kernels of our own, from PTX text that the driver compiles as it loads it.

use std::ffi::CStr;
use std::sync::Arc;

use super::error::DriverError;
use super::primary::Primary;
use super::sys::{CUfunction, CUmodule};

/// Loaded code. Its kernels own shares of it.
pub struct Module {
    raw: CUmodule,
    primary: Arc<Primary>,
}

// SAFETY: the driver lets any thread use a module, several at once included; the pointer is never followed by us.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles and loads PTX text, which may wait for all work on the device.
    ///
    /// # Errors
    /// What the driver says: text that it cannot compile, or code for newer GPUs.
    pub fn load(primary: &Arc<Primary>, ptx: &CStr) -> Result<Arc<Self>, DriverError> {
        primary.enter()?;
        let raw = primary.driver().load_module(ptx)?;
        Ok(Arc::new(Self { raw, primary: Arc::clone(primary) }))
    }

    /// The kernel of a name.
    ///
    /// # Errors
    /// What the driver says where the module has none.
    pub fn kernel(self: &Arc<Self>, name: &CStr) -> Result<Kernel, DriverError> {
        // SAFETY: the module is loaded as long as this exists.
        let raw = unsafe { self.primary.driver().function(self.raw, name) }?;
        Ok(Kernel { raw, _module: Arc::clone(self) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: its kernels held shares of this, and whoever launches one keeps it until it has ended. An error at
        // the end is of no use to anybody.
        let _ = self.primary.enter().and_then(|()| unsafe { self.primary.driver().unload_module(self.raw) });
    }
}

/// A kernel.
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
