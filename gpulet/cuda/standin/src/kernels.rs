//! The kernels with which GPUs are measured, by name. They do at launch what they would do on a GPU.
//!
//! A module is its text and has the kernels that the text declares as entries. Kernels with other names do not exist.

use crate::codes::{ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE, NOT_FOUND};
use crate::graphs::Recorded;
use crate::machine::{Answer, Kernel, Machine};

impl Kernel {
    const ALL: [(&str, Self); 4] = [
        ("record_sms", Self::RecordSms),
        ("work", Self::Work),
        ("copy_words", Self::CopyWords),
        ("poke", Self::Poke),
    ];

    /// The number of parameters.
    pub(crate) fn parameters(self) -> usize {
        match self {
            Self::RecordSms | Self::Work => 2,
            Self::CopyWords => 3,
            Self::Poke => 1,
        }
    }
}

/// The generator's value after `rounds` steps from `start`; steps are combined by doubling.
fn stepped(start: u32, mut rounds: u64) -> u32 {
    let (mut factor, mut summand) = (1_664_525_u32, 1_013_904_223_u32);
    let mut value = start;
    while rounds > 0 {
        if rounds & 1 == 1 {
            value = value.wrapping_mul(factor).wrapping_add(summand);
        }
        summand = summand.wrapping_mul(factor.wrapping_add(1));
        factor = factor.wrapping_mul(factor);
        rounds >>= 1;
    }
    value
}

impl Machine {
    pub(crate) fn module_load(&mut self, current: usize, text: &str) -> Answer<usize> {
        self.current_gpu("cuModuleLoadData", current)?;
        if !text.contains(".version") || !text.contains(".target") {
            return Err(INVALID_PTX);
        }
        let handle = self.new_handle();
        self.modules.insert(handle, text.to_owned());
        Ok(handle)
    }

    pub(crate) fn module_unload(&mut self, module: usize) -> Answer<()> {
        if self.modules.remove(&module).is_none() {
            return Err(self.unknown("cuModuleUnload", "module", module));
        }
        self.destroyed(module);
        self.kernels.retain(|_, (of, _)| *of != module);
        Ok(())
    }

    pub(crate) fn function(&mut self, module: usize, name: &str) -> Answer<usize> {
        let Some(text) = self.modules.get(&module) else {
            return Err(self.unknown("cuModuleGetFunction", "module", module));
        };
        let known = Kernel::ALL.iter().find(|(known, _)| *known == name);
        let known = known.filter(|_| text.contains(&format!(".entry {name}(")));
        let kernel = known.ok_or(NOT_FOUND)?.1;
        let handle = self.new_handle();
        self.kernels.insert(handle, (module, kernel));
        Ok(handle)
    }

    pub(crate) fn kernel(&mut self, function: usize) -> Answer<Kernel> {
        let found = self.kernels.get(&function).map(|(_, kernel)| *kernel);
        found.ok_or_else(|| self.broken("launch of an unknown kernel".to_owned(), INVALID_HANDLE))
    }

    pub(crate) fn launch(
        &mut self,
        kernel: Kernel,
        (blocks, threads): (u32, u32),
        arguments: &[u64],
        stream: usize,
    ) -> Answer<()> {
        self.copies_on("cuLaunchKernel", stream)?;
        if blocks == 0 || threads == 0 || threads > 1024 {
            return Err(INVALID_VALUE);
        }
        let (size, recorded) = ((blocks, threads), arguments.to_vec());
        if self.keep(stream, Recorded::Kernel { kernel, size, arguments: recorded }) {
            return Ok(());
        }
        let address = |index: usize| {
            arguments.get(index).and_then(|address| usize::try_from(*address).ok()).unwrap_or(0)
        };
        let count = arguments.get(1).copied().unwrap_or(0);
        match kernel {
            Kernel::RecordSms => {
                let sms: Vec<u32> = self.stream_sms(stream).unwrap_or_default().into_iter().collect();
                let on = (0..blocks).zip(sms.iter().copied().cycle());
                self.write_words(address(0), on.map(|(_, sm)| sm))
            }
            Kernel::Work => self.write_words(address(0), (0..blocks).map(|block| stepped(block, count))),
            Kernel::CopyWords => self.copy_words(address(0), address(1), arguments.get(2).copied()),
            Kernel::Poke => self.write_words(address(0), [1].into_iter()),
        }
    }

    fn write_words(&mut self, address: usize, words: impl Iterator<Item = u32>) -> Answer<()> {
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        if !self.is_allocated(address, bytes.len()) {
            self.poison(ILLEGAL_ADDRESS);
            return Ok(());
        }
        self.device_bytes("cuLaunchKernel", address, bytes.len())?.copy_from_slice(&bytes);
        Ok(())
    }

    /// Large buffers have no content, so there is nothing to copy.
    fn copy_words(&mut self, from: usize, to: usize, words: Option<u64>) -> Answer<()> {
        let length = words.and_then(|words| usize::try_from(words).ok()?.checked_mul(16));
        let length = length.ok_or(INVALID_VALUE)?;
        if !self.is_allocated(from, length) || !self.is_allocated(to, length) {
            self.poison(ILLEGAL_ADDRESS);
            return Ok(());
        }
        let held =
            |place: usize| self.buffers.range(..=place).next_back().is_some_and(|(_, it)| it.held.is_some());
        if held(from) && held(to) {
            let bytes = self.device_bytes("cuLaunchKernel", from, length)?.to_vec();
            self.device_bytes("cuLaunchKernel", to, length)?.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn is_allocated(&self, address: usize, length: usize) -> bool {
        self.buffers.range(..=address).next_back().is_some_and(|(&start, buffer)| {
            let end = (address - start).checked_add(length).and_then(|end| u64::try_from(end).ok());
            end.is_some_and(|end| end <= buffer.bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_steps_equal_single_steps() {
        for rounds in 0..70 {
            let one_by_one = (0..rounds)
                .fold(17_u32, |value, _| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            assert_eq!(stepped(17, rounds), one_by_one, "{rounds} steps");
        }
    }
}
