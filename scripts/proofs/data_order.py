#!/usr/bin/env python3
"""
data_order.py --windows N[,N...] [--weights W[,W...]] [--seed S] [--first G] --samples COUNT - prints which
window of which source each sample of a run is, as "source window" a line: what nn/dataset/order_internal.h defines,
said a second time. Sample g of a run is sequence g mod global-batch-size of step g / global-batch-size + 1.

    --windows  windows of each source, as gpt_train prints them in its lines "data:"
    --weights  of each source; without them all weigh alike

    python3 scripts/proofs/data_order.py --windows 1124,562 --weights 0.7,0.3 --samples 16
"""
import argparse

PERIOD = 65536
MIXTURE = 0xFFFFFFFF
ORDER = 4  # WF_RANDOM_ORDER
WORD, LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def mix64(x):
    """A step of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & LONG
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & LONG
    x = (x ^ x >> 27) * 0x94D049BB133111EB & LONG
    return x ^ x >> 31


def random_key(seed, purpose):
    return mix64((mix64(seed) + purpose) & LONG)


def philox(a, b, c, d, key):
    """The first word of Philox4x32-10."""
    low, high = key & WORD, key >> 32
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = y >> 32 ^ b ^ low, y & WORD, x >> 32 ^ d ^ high, x & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return a


def permuted(key, stream, epoch, n, index):
    half = 1
    while 4 ** half < n:
        half += 1
    mask = 2 ** half - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(6):
            word = philox(right, epoch & WORD, stream, ((epoch >> 32) * 8 + number) & WORD, key)
            left, right = right, left ^ (word & mask)
        index = left << half | right
        if index < n:
            return index


def quotas(weights):
    """How many samples of a period each source has: largest remainders."""
    total = 0.0
    for w in weights:  # sum() of newer Pythons rounds less
        total += w
    shares = [w / total * PERIOD for w in weights]
    quota = [int(share) for share in shares]
    lost = sorted(range(len(weights)), key=lambda s: (quota[s] - shares[s], s))
    for s in lost[:PERIOD - sum(quota)]:
        quota[s] += 1
    return quota


def order(seed, windows, weights, first, count):
    """Yields (source, window) of samples first .. first + count - 1."""
    key = random_key(seed, ORDER)
    quota = quotas(weights)
    owner = [s for s, n in enumerate(quota) for _ in range(n)]
    slots, before = [], [0] * len(windows)  # those of a period that were needed so far
    for sample in range(first, first + count):
        period, slot = divmod(sample, PERIOD)
        while len(slots) <= slot:
            source = owner[permuted(key, MIXTURE, 0, PERIOD, len(slots))]
            slots.append((source, before[source]))
            before[source] += 1
        source, rank = slots[slot]
        epoch, index = divmod(period * quota[source] + rank, windows[source])
        yield source, permuted(key, source, epoch, windows[source], index)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--windows", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--samples", type=int, required=True)
    args = parser.parse_args()
    windows = [int(n) for n in args.windows.split(",")]
    weights = [float(w) for w in args.weights.split(",")] if args.weights else [1.0] * len(windows)
    if len(weights) != len(windows) or min(windows) < 1 or min(weights) <= 0:
        parser.error("each source has at least one window and a positive weight")
    for source, window in order(args.seed, windows, weights, args.first, args.samples):
        print(source, window)


if __name__ == "__main__":
    main()
