//! Services as the accept loop wants them. On the hot path: nothing here allocates.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use pin_project_lite::pin_project;

use super::pace::Paced;
use crate::gate::CertificateCaller;

/// The same service, with bodies that go out as their client takes them.
pub fn paced<S, B>(
    service: S,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Paced<B>>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<Paced<B>>, Infallible>> + Send + 'static,
>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    hyper::service::service_fn(move |request| Mapped {
        future: service.call(request),
        map: |answered: Result<Response<B>, Infallible>| answered.map(|answer| answer.map(Paced::new)),
    })
}

/// The type that [`Listener::serve`](super::Listener::serve) expects, from an async function.
pub fn service<F, Fut, B>(
    answer: F,
) -> impl Service<
    Request<Incoming>,
    Response = Response<B>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
> + Clone
where
    F: Fn(Request<Incoming>) -> Fut + Clone,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body + 'static,
{
    hyper::service::service_fn(move |request| Mapped { future: answer(request), map: Ok })
}

/// A service whose requests carry the caller that the certificate of their connection stands for.
pub struct WithCaller<S> {
    pub service: S,
    pub caller: Option<CertificateCaller>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WithCaller<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        if let Some(caller) = &self.caller {
            request.extensions_mut().insert(caller.clone());
        }
        self.service.call(request)
    }
}

pin_project! {
    /// A future and what is made of its output. An `async` block would hold the future twice, and the futures that
    /// answer requests are large.
    struct Mapped<F, M> {
        #[pin]
        future: F,
        map: M,
    }
}

impl<F: Future, M: Fn(F::Output) -> T, T> Future for Mapped<F, M> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.project();
        this.future.poll(context).map(this.map)
    }
}
