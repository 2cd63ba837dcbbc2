//! Streams and events. Work finishes immediately, unless a test holds its stream.

use crate::codes::{INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::machine::{Answer, Event, Machine, Stream};

impl Machine {
    pub(crate) fn stream_create(&mut self, current: usize, flags: u32, priority: i32) -> Answer<usize> {
        let gpu = self.current_gpu("cuStreamCreateWithPriority", current)?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        let handle = self.new_handle();
        self.streams.insert(handle, Stream { gpu, green: None, priority, busy: false });
        Ok(handle)
    }

    pub(crate) fn stream_destroy(&mut self, stream: usize) -> Answer<()> {
        let Some(destroyed) = self.streams.remove(&stream) else {
            return Err(self.unknown("cuStreamDestroy", "stream", stream));
        };
        self.destroyed(stream);
        if destroyed.busy {
            self.broken("stream destroyed with work in flight".to_owned(), 0);
        }
        Ok(())
    }

    fn stream(&mut self, call: &str, stream: usize) -> Answer<&Stream> {
        if !self.streams.contains_key(&stream) {
            return Err(self.unknown(call, "stream", stream));
        }
        self.streams.get(&stream).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn stream_query(&mut self, stream: usize) -> Answer<()> {
        self.stream("cuStreamQuery", stream)?;
        self.refuse_to_wait(stream)?;
        if self.stream("cuStreamQuery", stream)?.busy { Err(NOT_READY) } else { Ok(()) }
    }

    /// A real driver would wait. Work that a test holds would never finish, so waiting for it is a violation.
    pub(crate) fn stream_synchronize(&mut self, stream: usize) -> Answer<()> {
        self.stream("cuStreamSynchronize", stream)?;
        self.refuse_to_wait(stream)?;
        if self.stream("cuStreamSynchronize", stream)?.busy {
            return Err(self.broken("waited for a stream that a test holds".to_owned(), NOT_READY));
        }
        Ok(())
    }

    /// Sets whether work is in flight on a stream.
    pub(crate) fn hold(&mut self, stream: usize, busy: bool) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.busy = busy;
        }
    }

    pub(crate) fn event_create(&mut self, current: usize) -> Answer<usize> {
        let gpu = self.current_gpu("cuEventCreate", current)?;
        let handle = self.new_handle();
        self.events.insert(handle, Event { gpu, after: None });
        Ok(handle)
    }

    pub(crate) fn event_record(&mut self, event: usize, stream: usize) -> Answer<()> {
        let green = self.stream("cuEventRecord", stream)?.green.is_some();
        if green && !self.shape.primary_events {
            return Err(INVALID_HANDLE);
        }
        self.record("cuEventRecord", event, stream)
    }

    pub(crate) fn green_record(&mut self, green: usize, event: usize) -> Answer<()> {
        if !self.greens.contains_key(&green) {
            return Err(self.unknown("cuGreenCtxRecordEvent", "green context", green));
        }
        let stream = self.streams.iter().find(|(_, stream)| stream.green == Some(green));
        let stream = stream.map_or(0, |(&handle, _)| handle);
        self.record("cuGreenCtxRecordEvent", event, stream)
    }

    fn record(&mut self, call: &str, event: usize, stream: usize) -> Answer<()> {
        let Some(recorded) = self.events.get_mut(&event) else {
            return Err(self.unknown(call, "event", event));
        };
        recorded.after = Some(stream);
        Ok(())
    }

    pub(crate) fn event_query(&mut self, event: usize) -> Answer<()> {
        let Some(found) = self.events.get(&event) else {
            return Err(self.unknown("cuEventQuery", "event", event));
        };
        let stream = found.after.and_then(|stream| self.streams.get(&stream));
        if stream.is_some_and(|stream| stream.busy) { Err(NOT_READY) } else { Ok(()) }
    }

    pub(crate) fn event_synchronize(&mut self, event: usize) -> Answer<()> {
        match self.event_query(event) {
            Err(NOT_READY) => {
                Err(self.broken("waited for an event on a stream that a test holds".to_owned(), NOT_READY))
            }
            answer => answer,
        }
    }

    pub(crate) fn event_destroy(&mut self, event: usize) -> Answer<()> {
        if self.events.remove(&event).is_none() {
            return Err(self.unknown("cuEventDestroy", "event", event));
        }
        self.destroyed(event);
        Ok(())
    }
}
