"""The differential fuzzer: mutated files and random sequences of writes, ours against GTiff.

    fuzz.py [--seconds N] [--seed S] [--only read|write] [--codecs ours|all]
    fuzz.py FILE…              replays findings: files, or sequences in JSON
    fuzz.py --emit FOLDER      writes mutated files and does nothing with them

Prints its seed; a run with the same one (GPUGTIFF_SEED) has the same cases. What it finds is made
smaller and saved in target/fuzz/findings: a file and a line that says what is wrong, or a JSON of a
sequence. `--codecs ours` leaves out what GTiff's codecs decode and encode.
"""

import argparse
import json
import os
import random
import re
import resource
import sys
import tempfile
import time

import paths
import judge as judges  # noqa: I001
import mutate
import seeds
import sequences

MOST_FINDINGS = 20


class Fuzzer:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.judge = judges.Judge(folder, sanitizer())
        self.cases = {"read": 0, "write": 0}
        self.findings, self.alike = [], {}
        self.start = time.time()

    # ---- reading ------------------------------------------------------------------------------

    def load(self):
        found = seeds.generate()
        if self.arguments.codecs == "ours":
            found = {name: path for name, path in found.items() if name in seeds.codecs_ours()}
        self.files = {}
        for name, path in {**found, **(seeds.corpus() if self.arguments.corpus else {})}.items():
            with open(path, "rb") as f:
                self.files[name] = f.read()
        self.made = [name for name in self.files if name in found]

    def mutated(self, number):
        """The file of a case: its seed, and what is done to it."""
        rng = random.Random("%d/read/%d" % (self.arguments.seed, number))
        # Half of the cases on files of others, where there are any.
        name = rng.choice(self.made if rng.random() < 0.5 else sorted(self.files))
        data, mutations = self.files[name], []
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
            current = mutate.apply(data, mutations)
            if current:
                mutations.append(mutate.random_mutation(rng, current))
        return name, mutations

    def read_one(self, number):
        name, mutations = self.mutated(number)
        data = self.files[name]
        if not self.wanted(mutate.apply(data, mutations)):
            return
        verdict = self.judge.read(mutate.apply(data, mutations), number)
        self.cases["read"] += 1
        codecs = sorted(mutate.compressions(mutate.apply(data, mutations)))
        if verdict and self.is_new(verdict[0], codecs):
            self.found_file(name, data, mutations, number, verdict)

    def wanted(self, data):
        return bool(data) and (self.arguments.codecs == "all" or mutate.compressions(data) <= judges.OURS)

    def found_file(self, name, data, mutations, number, verdict):
        smaller = True
        while smaller:
            smaller = False
            for i in range(len(mutations)):
                fewer = mutations[:i] + mutations[i + 1 :]
                again = self.judge.read(mutate.apply(data, fewer), number)
                if again and again[0] == verdict[0]:
                    mutations, verdict, smaller = fewer, again, True
                    break
        text = "%s %s: %s" % (name, json.dumps(mutations), verdict[1])
        self.report("read-%d-%d.tif" % (self.arguments.seed, number), verdict[0], text,
                    mutate.apply(data, mutations))  # fmt: skip

    # ---- writing ------------------------------------------------------------------------------

    def write_one(self, number):
        codecs = sequences.OURS + (sequences.GTIFFS if self.arguments.codecs == "all" else [])
        case = sequences.case_of("%d/write/%d" % (self.arguments.seed, number), codecs)
        verdict = self.judge.write(case)
        self.cases["write"] += 1
        if not verdict or not self.is_new(verdict[0], case["how"], case["options"][0]):
            return
        smaller = True
        while smaller:
            smaller = False
            for fewer in sequences.shrink(case):
                again = self.judge.write(fewer)
                if again and again[0] == verdict[0]:
                    case, verdict, smaller = fewer, again, True
                    break
        text = json.dumps(case)
        self.report("write-%d-%d.json" % (self.arguments.seed, number), verdict[0],
                    "%s: %s" % (text, verdict[1]), text.encode() + b"\n")  # fmt: skip

    # ---- both ---------------------------------------------------------------------------------

    def emit(self, folder):
        self.load()
        for number in range(self.arguments.first, self.arguments.first + (self.arguments.count or 10)):
            name, mutations = self.mutated(number)
            mutate.save(os.path.join(folder, "%d.tif" % number), mutate.apply(self.files[name], mutations))
        return 0

    def replay(self, files):
        failed = 0
        for path in files:
            with open(path, "rb") as f:
                verdict = replay(self.judge, path, f.read())
            failed |= verdict is not None
            print("%s: %s" % (path, "as GTiff" if verdict is None else "%s: %s" % verdict))
        self.judge.stop()
        return failed

    def is_new(self, *key):
        """Of findings that look alike the first three are kept, the others are counted."""
        count = self.alike[str(key)] = self.alike.get(str(key), 0) + 1
        return count <= 3

    def report(self, name, kind, text, content):
        os.makedirs(paths.FINDINGS, exist_ok=True)
        path = os.path.join(paths.FINDINGS, name)
        with open(path, "wb") as f:
            f.write(content)
        with open(path + ".txt", "w") as f:
            f.write("%s\n%s\n" % (kind, text))
        self.findings.append(kind)
        print("FINDING %s: %s\n  %s" % (kind, path, text[:3000]), flush=True)

    def run(self):
        self.load()
        end = self.start + self.arguments.seconds
        kinds = [self.arguments.only] if self.arguments.only else ["read", "write"]
        number = self.arguments.first
        shown = time.time()
        while time.time() < end and len(self.findings) < self.arguments.most:
            for kind in kinds:
                getattr(self, kind + "_one")(number)
            number += 1
            if time.time() - shown > 60:
                shown = time.time()
                print("%d s: %s" % (shown - self.start, self.cases), flush=True)
            if self.arguments.count and number - self.arguments.first >= self.arguments.count:
                break
        self.judge.stop()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = sum(u.ru_utime + u.ru_stime for u in used)
        print("differential: %d files, %d sequences, %d findings in %.0f s (%.0f s of CPU)" % (
            self.cases["read"], self.cases["write"], len(self.findings), time.time() - self.start, cpu))  # fmt: skip
        for key, count in sorted(self.alike.items()):
            print("%6d %s" % (count, key))
        fatal = self.arguments.fail_on
        return 1 if any(not fatal or kind in fatal for kind in self.findings) else 0


def replay(judge, name, data):
    """The verdict on a saved case. The number of a file's case decides what is asked; it ends the name."""
    if name.endswith(".json"):
        return judge.write(json.loads(data))
    number = re.search(r"-(\d+)\.tif$", name)
    return judge.read(data, int(number.group(1)) if number else 0)


def sanitizer():
    """Variables for the process with our driver, given as NAME=VALUE lines."""
    lines = os.environ.get("GPUGTIFF_FUZZ_OURS", "").split("\n")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    seed = int(os.environ.get("GPUGTIFF_SEED") or random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=0, help="at most so many cases")
    parser.add_argument("--only", choices=["read", "write"])
    parser.add_argument("--codecs", choices=["ours", "all"], default=os.environ.get("GPUGTIFF_FUZZ_CODECS", "all"))
    parser.add_argument("--most", type=int, default=MOST_FINDINGS, help="findings after which it ends")
    parser.add_argument("--fail-on", nargs="+", metavar="KIND", help="kinds of findings that fail the run; all if not given")
    parser.add_argument("--emit", metavar="FOLDER")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--no-corpus", dest="corpus", action="store_false", help="no files of others")
    return parser.parse_args()


def main():
    arguments = parse()
    print("GPUGTIFF_SEED=%d" % arguments.seed, flush=True)
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="gpugtiff-fuzz-", dir=shared) as folder:
        fuzzer = Fuzzer(arguments, folder)
        if arguments.emit:
            return fuzzer.emit(arguments.emit)
        return fuzzer.replay(arguments.files) if arguments.files else fuzzer.run()


if __name__ == "__main__":
    sys.exit(main())
