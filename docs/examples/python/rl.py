"""
rl.py - reinforcement learning from Python: the generator runs on another mesh than the trainer, and its log probabilities are the
trainer's, bit for bit, so that importance ratios are exactly 1 and a policy gradient needs no correction: REINFORCE (Williams 1992)
on a toy reward, a token that follows the one before it.

    python3 docs/examples/python/rl.py
"""
import numpy as np
import weft

TEXTS, TOKENS, VOCABULARY, STEPS = 48, 10, 12, 40
MODEL = dict(n_layer=2, n_head=6, n_kv_head=3, n_embd=24, ffn=48, arch="llama", vocab_size=VOCABULARY, seq_len=TOKENS,
             positions=TOKENS + 1, global_batch_size=TEXTS, seed=3)


def main() -> None:
    with weft.Run(tp=2, dp=2, weights=True, lr=1e-2, **MODEL) as trainer, weft.Run(tp=1, dp=1, **MODEL) as generator:
        for step in range(STEPS):
            generator.load(trainer)
            texts = generator.generate([[i % VOCABULARY] for i in range(TEXTS)], TOKENS, temperature=1.0, seed=step, logprobs=True)
            ids = np.stack([text.ids for text in texts])
            ratios = np.exp(trainer.logprobs(ids) - np.stack([text.logprobs for text in texts]))
            assert (ratios == 1).all(), "not the trainer's bits"
            reward = (ids[:, 1:] == (ids[:, :-1] + 1) % VOCABULARY).astype(np.float32)
            made = trainer.step(ids, weights=reward - reward.mean())
            if step % 10 == 9:
                print(f"step {made.step:3d}: reward {reward.mean():.3f}, all {ratios.size} ratios are 1, digest {made.digest}")
    assert reward.mean() > 0.3


if __name__ == "__main__":
    main()
