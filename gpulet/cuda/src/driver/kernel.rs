//! Our own kernels, from PTX text that the driver compiles when it loads it.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;

use super::error::DriverError;
use super::library::{call, fetch};
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
        let driver = primary.driver();
        let text = ptx.as_ptr().cast();
        // SAFETY: the text ends with a zero byte, as the driver requires; writes one pointer.
        let raw = unsafe { fetch!(driver, driver.kernels()?, cuModuleLoadData(null_mut(), text)) }?;
        Ok(Arc::new(Self { raw, primary: Arc::clone(primary) }))
    }

    /// The kernel with this name.
    ///
    /// # Errors
    /// The module does not have it.
    pub fn kernel(self: &Arc<Self>, name: &CStr) -> Result<Kernel, DriverError> {
        let driver = self.primary.driver();
        let name = name.as_ptr();
        // SAFETY: the module is loaded while this exists; writes one pointer.
        let raw =
            unsafe { fetch!(driver, driver.kernels()?, cuModuleGetFunction(null_mut(), self.raw, name)) }?;
        Ok(Kernel { raw, _module: Arc::clone(self) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let driver = self.primary.driver();
        let Ok(calls) = driver.kernels() else { return };
        // SAFETY: its kernels kept this alive, and callers keep a kernel until it has finished. An error here cannot be
        // handled.
        let _ = self.primary.enter().and_then(|()| unsafe { call!(driver, calls, cuModuleUnload(self.raw)) });
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
