//! The trait implementations of the public stores, which forward to [`ServerStore`](super::store::ServerStore).

/// Implements the traits of a store that wraps `Arc<ServerStore<…>>`. The capabilities after the name extend those that every
/// server store has. The last capability depends on a condition.
macro_rules! server_store {
    ($store:ident $(, $more:ident)* $(; $some:ident if |$it:ident| $there:expr)?) => {
        const _: () = {
            use ::std::sync::Arc;
            use ::std::time::Duration;

            use ::async_trait::async_trait;
            use ::idempotent_core::store::{Health, HealthReport};
            use ::idempotent_core::{
                StoreCapabilities, Admin, Batch, Claim, ClaimRequest, Completion, FencingToken, ClaimHandle, Inspect, InspectedRecord,
                Key, KeyFilter, PageLimits, RecordPage, Purge, Record, Release, Renewal, Search, Settled, Store, StoreError,
            };

            #[async_trait]
            impl Store for $store {
                async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
                    self.0.claim(request).await
                }

                async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
                    self.0.renew(held, lease).await
                }

                async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
                    self.0.complete(held, completion).await
                }

                async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
                    self.0.release(held, release).await
                }

                async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
                    Ok(self.0.inspect(key).await?.map(|seen| seen.record))
                }

                fn capabilities(&self) -> StoreCapabilities<'_> {
                    let all = StoreCapabilities::none().with_batch(self).with_search(self);
                    let all = all.with_purge(self).with_admin(self).with_inspect(self).with_renewal(self).with_health(self)$(.$more(self))*;
                    $(
                        let $it = self;
                        let all = if $there { all.$some(self) } else { all };
                    )?
                    all
                }
            }

            #[async_trait]
            impl Renewal for $store {
                async fn renewal_store(&self) -> Result<Arc<dyn Store>, StoreError> {
                    Ok(Arc::new(self.again().connect().await?))
                }
            }

            #[async_trait]
            impl Health for $store {
                async fn check(&self) -> Result<HealthReport, StoreError> {
                    self.0.check().await
                }
            }

            #[async_trait]
            impl Batch for $store {
                async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
                    self.0.in_chunks(requests).await
                }

                async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
                    self.0.in_chunks(held).await
                }

                async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
                    self.0.in_chunks(done).await
                }
            }

            #[async_trait]
            impl Search for $store {
                async fn search(
                    &self,
                    filter: &KeyFilter,
                    after: Option<u128>,
                    limits: PageLimits,
                ) -> Result<RecordPage, StoreError> {
                    self.0.search(filter, after, limits).await
                }
            }

            #[async_trait]
            impl Purge for $store {
                async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
                    self.0.purge(at_most).await
                }
            }

            #[async_trait]
            impl Admin for $store {
                async fn forget(
                    &self,
                    key: &Key,
                    expected: FencingToken,
                    force: bool,
                    retention: Duration,
                ) -> Result<Settled, StoreError> {
                    self.0.forget(key, expected, force, retention).await
                }
            }

            #[async_trait]
            impl Inspect for $store {
                async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
                    self.0.inspect(key).await
                }
            }
        };
    };
}
pub(crate) use server_store;
