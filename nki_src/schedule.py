"""How the kernels keep the tensor engine busy: work in steps, issued side by side.

The engines of the chip take their instructions in program order, so an engine idles whenever the
next instruction of its queue waits for another engine. The cure is to issue, between two
instructions that depend on each other, instructions of something independent.

A *work* is an object with `steps` and `step(index)`; its steps are issued in order. A *task* is a
sequence of works that need each other's results: `stages`; `weight(stage)`, an estimate of the time
of a stage in any unit; `delay(stage)`, how much later, in that unit, the next step of the stage
should come, because it waits for other engines; and `open(stage)`, which makes the work of a stage
when the stages before it have been issued (and so allocates its tiles as late as possible). `run`
issues one task with another one in its background.
"""

import nki.language as nl


def run(task, background):
    """Issue all of `task` and all of `background` (or None), both progressing evenly, except that
    neither takes a step before its time while the other one has something to issue instead."""
    front = Progress(task)
    if background == None:
        while not front.done():
            front.step()
        return
    behind = Progress(background)
    clock = 0.0
    while not front.done() or not behind.done():
        first = behind
        second = front
        if behind.done() or (not front.done() and front.fraction() <= behind.fraction()):
            first = front
            second = behind
        if first.ready > clock and not second.done() and second.ready < first.ready:
            first = second
        clock = max(clock, first.ready)
        clock += first.step()
        first.ready = clock + first.delay


class Progress(nl.NKIObject):
    """A task that is being issued. ready: when its next step should be issued, in the unit of
    `weight`, of which `delay` should pass after each step of its stage."""

    def __init__(self, task):
        self.task = task
        self.total = 0.0
        for stage in range(task.stages):
            self.total += task.weight(stage)
        self.stage = 0
        self.passed = 0.0
        self.work = None
        self.index = 0
        self.ready = 0.0
        self.delay = 0.0

    def done(self):
        """Whether everything has been issued."""
        return self.stage == self.task.stages

    def fraction(self):
        """The part of the task that has been issued, 0 to 1."""
        if self.work == None:
            return self.passed / self.total
        here = self.task.weight(self.stage) * self.index / self.work.steps
        return (self.passed + here) / self.total

    def step(self):
        """Issue one step; returns its weight."""
        if self.work == None:
            self.work = self.task.open(self.stage)
            self.index = 0
            self.delay = self.task.delay(self.stage)
        self.work.step(self.index)
        weight = self.task.weight(self.stage) / self.work.steps
        self.index += 1
        if self.index == self.work.steps:
            self.passed += self.task.weight(self.stage)
            self.work = None
            self.stage += 1
        return weight


class Together(nl.NKIObject):
    """The steps of `first`, with all steps of `other`, if any, spread over them.

    Each is an object with `steps` and `step(index)`; its steps are issued in order.
    """

    def __init__(self, first, other):
        self.first = first
        self.other = other
        self.done = 0
        self.steps = first.steps

    def step(self, index):
        """Step `index` of `steps`."""
        self.first.step(index)
        if self.other != None:
            target = (index + 1) * self.other.steps // self.steps
            for step in range(self.done, target):
                self.other.step(step)
            self.done = target


class Part(nl.NKIObject):
    """Part `index` of `count` of the steps of a work, as a work."""

    def __init__(self, work, index, count):
        self.work = work
        self.first = work.steps * index // count
        self.steps = work.steps * (index + 1) // count - self.first

    def step(self, index):
        """Step `index` of `steps`."""
        self.work.step(self.first + index)
