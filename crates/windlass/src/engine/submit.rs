//! Writes on their way to the store, and again if an answer is lost.
//!
//! A write with an identity may be sent twice: the second time it is answered from the record.

use std::time::Duration;

use windlass_store::{Error, Reply, Request, Write};

use super::Inner;
use crate::{SubmitError, TraceContext};

/// How often a write whose answer was lost is sent again, and how long in between.
const SEND_AGAIN: usize = 5;
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The answer to a write, or why there is none.
type Answered = Result<Reply, SubmitError>;

impl Inner {
    /// Submits a request, and lets whoever in this process has to know hear of it.
    pub(crate) async fn submit<R: Request>(&self, request: R) -> Result<R::Reply, SubmitError> {
        self.send(request.into_write()).await.map(R::expect)
    }

    async fn send(&self, write: Write) -> Answered {
        let reply = self.handle.submit(write).await?;
        self.note([&reply].into_iter());
        Ok(reply)
    }

    /// Submits a request that has an identity: if the answer is lost, it is sent again and answered from the
    /// record. Until it is, nobody knows whether it was written, whatever a store says that was away meanwhile.
    pub(crate) async fn submit_known<R: Request>(
        &self,
        request: R,
    ) -> Result<R::Reply, SubmitError> {
        self.submit_caused(request, None).await
    }

    /// The same for a request of which a job may come, and which this span has caused.
    pub(crate) async fn submit_caused<R: Request>(
        &self,
        request: R,
        cause: Option<TraceContext>,
    ) -> Result<R::Reply, SubmitError> {
        self.send_known(request.into_write(), cause).await.map(R::expect)
    }

    async fn send_known(&self, write: Write, cause: Option<TraceContext>) -> Answered {
        let enqueuing = self.enqueuing();
        let first = self.send(write.clone()).await;
        let sent_twice = is_lost(&first);
        let answer = if sent_twice { self.send_again(&write, first).await } else { first };
        if let Some(enqueuing) = enqueuing {
            let answers = [(&write, &answer, cause)].into_iter();
            Box::pin(self.tell_of_made(enqueuing, answers, sent_twice)).await;
        }
        answer
    }

    /// Sends a write again whose answer is lost.
    async fn send_again(&self, write: &Write, lost: Answered) -> Answered {
        for _ in 0..SEND_AGAIN {
            tokio::time::sleep(SEND_AGAIN_AFTER).await;
            let answer = self.send(write.clone()).await;
            if is_answered(&answer) {
                return answer;
            }
        }
        lost
    }

    /// Submits writes in this order.
    pub(crate) async fn submit_many(&self, writes: Vec<Write>) -> Vec<Answered> {
        let replies = self.handle.submit_many(writes).await;
        self.note(replies.iter().flatten());
        replies
    }

    /// Submits writes that have identities, in this order. Those whose answers are lost, and no others, are sent again.
    /// `cause` knows by its place which span has caused a write.
    pub(crate) async fn submit_many_caused(
        &self,
        writes: &[Write],
        cause: impl Fn(usize) -> Option<TraceContext> + Send,
    ) -> Vec<Answered> {
        let enqueuing = self.enqueuing();
        let first = self.submit_many(writes.to_vec()).await;
        let sent_twice = first.iter().any(is_lost);
        let answers = if sent_twice { self.submit_many_again(writes, first).await } else { first };
        if let Some(enqueuing) = enqueuing {
            let answers = writes.iter().zip(&answers).enumerate();
            let answers = answers.map(|(place, (write, answer))| (write, answer, cause(place)));
            Box::pin(self.tell_of_made(enqueuing, answers, sent_twice)).await;
        }
        answers
    }

    /// Sends those again whose answers are lost.
    async fn submit_many_again(
        &self,
        writes: &[Write],
        mut answers: Vec<Answered>,
    ) -> Vec<Answered> {
        for _ in 0..SEND_AGAIN {
            let lost = answers.iter().enumerate().filter(|(_, answer)| is_lost(answer));
            let lost: Vec<usize> = lost.map(|(place, _)| place).collect();
            if lost.is_empty() {
                break;
            }
            tokio::time::sleep(SEND_AGAIN_AFTER).await;
            let again = lost.iter().map(|place| writes[*place].clone()).collect();
            for (place, answer) in lost.into_iter().zip(self.submit_many(again).await) {
                if is_answered(&answer) {
                    answers[place] = answer;
                }
            }
        }
        answers
    }

    fn note<'a>(&self, replies: impl Iterator<Item = &'a Reply> + Clone) {
        let answers = replies.filter_map(|reply| match reply {
            Reply::Answer(answer, _) => Some(answer),
            _ => None,
        });
        self.local.note(answers.clone());
        for answer in answers.filter(|answer| answer.state.is_end()) {
            self.ends.tell(answer.job_id);
        }
    }
}

/// Does nobody know what became of the write?
fn is_lost(answer: &Answered) -> bool {
    matches!(answer, Err(SubmitError::Store(error)) if matches!(**error, Error::Ambiguous(_)))
}

/// Was the write decided upon?
fn is_answered(answer: &Answered) -> bool {
    matches!(answer, Ok(_) | Err(SubmitError::Refused(_)))
}
