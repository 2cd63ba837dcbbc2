//! Ctrl-C and SIGTERM: the first ends the run and writes what was measured, the second ends the program.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context as _;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// A flag that Ctrl-C sets.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = Builder::new_current_thread().enable_io().build().context("cannot listen for signals")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).context("cannot listen for signals");
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
    };
    let told = Arc::clone(&stop);
    let listen = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if told.swap(true, Ordering::Relaxed) {
                    process::exit(i32::from(super::INTERRUPTED));
                }
            }
        });
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).context("cannot listen for signals")?;
    Ok(stop)
}
