//! Modules and kernels.

use std::ffi::{CStr, c_uint, c_void};

use super::super::sys::{CUfunction, CUmodule, CUstream};
use super::{Answer, Driver};

impl Driver {
    /// `cuModuleLoadData` in the current context, from PTX text.
    pub(in crate::driver) fn load_module(&self, ptx: &CStr) -> Answer<CUmodule> {
        let kernels = self.kernels()?;
        let mut module = std::ptr::null_mut();
        let text = ptx.as_ptr().cast::<c_void>();
        // SAFETY: the text ends with a zero byte, as the driver requires; writes one pointer.
        unsafe { call!(self, kernels, cuModuleLoadData(&raw mut module, text)) }?;
        Ok(module)
    }

    /// `cuModuleUnload`.
    ///
    /// # Safety
    /// The module is loaded, and none of its kernels runs or is used afterwards.
    pub(in crate::driver) unsafe fn unload_module(&self, module: CUmodule) -> Answer<()> {
        let kernels = self.kernels()?;
        // SAFETY: as the caller ensures.
        unsafe { call!(self, kernels, cuModuleUnload(module)) }
    }

    /// `cuModuleGetFunction`.
    ///
    /// # Safety
    /// The module is loaded.
    pub(in crate::driver) unsafe fn function(&self, module: CUmodule, name: &CStr) -> Answer<CUfunction> {
        let kernels = self.kernels()?;
        let mut function = std::ptr::null_mut();
        // SAFETY: as the caller ensures; writes one pointer.
        unsafe { call!(self, kernels, cuModuleGetFunction(&raw mut function, module, name.as_ptr())) }?;
        Ok(function)
    }

    /// `cuLaunchKernel` of `blocks` blocks of `threads` threads each, in one dimension.
    ///
    /// # Safety
    /// The function and the stream are alive, the arguments match the kernel's parameters, and what the kernel does with
    /// them is sound until it has finished.
    pub(in crate::driver) unsafe fn launch(
        &self,
        function: CUfunction,
        (blocks, threads): (c_uint, c_uint),
        arguments: &[u64],
        stream: CUstream,
    ) -> Answer<()> {
        let kernels = self.kernels()?;
        let place = |argument: &u64| std::ptr::from_ref(argument).cast_mut().cast::<c_void>();
        let mut places: Vec<*mut c_void> = arguments.iter().map(place).collect();
        let places = places.as_mut_ptr();
        let none = std::ptr::null_mut();
        // SAFETY: as the caller ensures; the driver reads the arguments before it returns.
        unsafe {
            call!(
                self,
                kernels,
                cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, places, none)
            )
        }
    }
}
