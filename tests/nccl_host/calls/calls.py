"""What NCCL calls of its plugins, in which order and from which thread, as call_log.cc wrote it: rules that the plugin's
identity of a send and its loss policy rest on, and the shapes of all calls, to compare NCCL's with the fake core's."""

import collections

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv", "AlltoAll",
             "Scatter", "Gather")
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
UNDEFINED = 0xffffffff
SENDS = sum(1 << FUNCTIONS.index(name) for name in ("Send", "Recv", "AlltoAll", "Scatter", "Gather"))
STEPS = 8  # NCCL_STEPS: handles of an operation

Call = collections.namedtuple("Call", "line thread table name fields")


class Deviation(Exception):
    """A rule that does not hold, with the line of the log."""


class Event:
    """A profiler's event."""

    def __init__(self, call, parent):
        self.call, self.fields, self.parent = call, call.fields, parent
        self.type, self.context = call.fields["type"], call.fields["context"]
        self.open, self.states = True, []
        self.steps, self.open_steps, self.sent = 0, 0, 0  # of a ProxyOp
        self.request = None  # of a ProxyStep that sends

    def ancestor(self, kind):
        event = self
        while event is not None and event.type != kind:
            event = event.parent
        return event

    def task(self):
        operation = self.ancestor("ProxyOp")
        return operation.parent if operation else None

    def shown(self):
        return f"{self.type} {self.fields['event']} (line {self.call.line})"


def read(path):
    calls = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        thread, table, name, *fields = line.split(" ")
        calls.append(Call(number, thread, table, name, dict(field.split("=", 1) for field in fields)))
    return calls


class Judge:
    """Reads the calls of a process one after the other. `shapes` and `counts` are what it has seen."""

    def __init__(self, calls):
        self.calls, self.events = calls, {}
        self.shapes, self.counts = set(), collections.Counter()
        self.told, self.ended = {}, collections.Counter()  # by thread; contexts by table
        self.within, self.done = {}, set()  # by thread: events of the message that it posts; requests
        self.numbers = collections.Counter()
        self.communicators, self.posted = [], {}
        self.roles = self._roles()
        for call in calls:
            self.call = call
            getattr(self, f"_{call.table}_{call.name}", lambda fields: None)(call.fields)
        self.call = None
        self._all_ended()

    def require(self, condition, what):
        if not condition:
            raise Deviation(f"line {self.call.line if self.call else 'last'}: {what}")

    def _roles(self):
        roles = collections.defaultdict(lambda: "application")
        names = {"isend": "progress", "irecv": "progress", "connect": "service", "accept": "service", "listen": "service"}
        for call in self.calls:
            if call.table == "net" and call.name in names:
                role = names[call.name]
                if roles.setdefault(call.thread, role) != role:
                    raise Deviation(f"line {call.line}: thread {call.thread} is both {role} and {roles[call.thread]}")
        return roles

    def seen(self, shape):
        self.shapes.add(f"{self.roles[self.call.thread]}: {shape}")

    # Life of a communicator.

    def _net_init(self, fields):
        self.communicators.append(["net init"])

    def _life(self, word, fields):
        self.require(fields["result"] == "0" and self.communicators, f"{word} failed, or came before net init")
        # A child with shared resources has its parent's net context.
        if word in self.communicators[-1]:
            self.communicators.append([])
        self.communicators[-1].append(word)

    def _profiler_init(self, fields):
        self._life("profiler init", fields)

    def _tuner_init(self, fields):
        self._life("tuner init", fields)

    def _tuner_finalize(self, fields):
        self.ended["tuner"] += 1

    def _profiler_finalize(self, fields):
        left = [event.shown() for event in self.events.values() if event.open and event.context == fields["context"]]
        self.require(not left, f"the profiler ends with {len(left)} events open, the first {left[:1]}")
        self.ended["profiler"] += 1

    def _net_finalize(self, fields):
        ended = self.ended
        self.require(ended["profiler"] > ended["net"], "the net plugin ends before the profiler")
        self.require(ended["tuner"] > ended["net"] or not any("tuner init" in each for each in self.communicators),
                     "the net plugin ends before the tuner")
        ended["net"] += 1

    def _all_ended(self):
        for each in self.communicators:
            rest = [word for word in each if word != "net init"]
            self.require(rest in (["profiler init", "tuner init"], ["profiler init"]) and "net init" not in each[1:],
                         f"a communicator begins as {each}, not with net, profiler, tuner")
        self.counts["communicators"] = len(self.communicators)
        made = sum("net init" in each for each in self.communicators)
        self.require(self.ended["net"] == made, "a net context never ended")

    # setNetAttr.

    def _net_setNetAttr(self, fields):
        told = {name: int(fields[name], 16) for name in ("op", "algo", "proto")}
        key = (told["op"], told["algo"], told["proto"], fields["peers"], fields["flows"], fields["context"])
        role = self.roles[self.call.thread]
        if role == "progress":
            self.require(self.told.get(self.call.thread, {}).get("key") != key or self.posted.get("connect"),
                         "setNetAttr without a change")
            self.posted["connect"] = False
        else:
            self.require(role == "service", f"setNetAttr by the {role} thread")
            self.require(told["op"] in (UNDEFINED, SENDS) and told["algo"] == told["proto"] == UNDEFINED,
                         f"setNetAttr before a connection names one operation: {fields}")
            self.posted["connect"] = True
        self.told[self.call.thread] = {**told, "key": key, "fresh": True}
        self.counts[f"setNetAttr by {role}"] += 1

    def _connects(self, what):
        told = self.told.get(self.call.thread, {})
        self.require(told.get("fresh"), f"{what} without setNetAttr before it")
        told["fresh"] = False
        self.seen(f"setNetAttr of {'all sends' if told['op'] == SENDS else 'nothing'}, {what}")

    def _net_connect(self, fields):
        self._connects("connect")

    def _net_accept(self, fields):
        self._connects("accept")

    def _says(self, task, what):
        """What setNetAttr said last on this thread is the task's."""
        told, api = self.told.get(self.call.thread), task.parent
        self.require(told, f"{what} on a thread that was told nothing")
        function = api.fields["func"] if api else task.fields["func"]
        self.require(told["op"] == 1 << FUNCTIONS.index(function), f"{what} of {function}, but op is {told['op']:x}")
        if task.type == "Coll":
            wanted = (1 << ALGORITHMS.index(task.fields["algo"]), 1 << PROTOCOLS.index(task.fields["proto"]))
            self.require((told["algo"], told["proto"]) == wanted,
                         f"{what} by {wanted}, but setNetAttr said {told['algo']:x}, {told['proto']:x}")
        if told["fresh"]:
            self.seen(f"setNetAttr of a {'collective' if task.type == 'Coll' else 'send'}, {what}")
        told["fresh"] = False

    # Messages.

    def _net_isend(self, fields):
        self.within[self.call.thread] = []

    def _net_isent(self, fields):
        events = self.within.pop(self.call.thread)
        self.require(len(events) == 1, f"{len(events)} NetPlugin events within isend, not 1")
        step = events[0].parent
        self.require(step is not None and step.open and step.type == "ProxyStep", "isend's event is of no open step")
        operation = step.parent
        self.require(operation.fields["send"] == "1", "isend's event is of a receive")
        self.require(int(step.fields["step"]) == operation.sent,
                     f"isend {operation.sent} of {operation.shown()} has the handle of step {step.fields['step']}")
        self._says(step.task(), "isend")
        self.counts["isend"] += 1
        if fields["request"] != "(nil)":
            operation.sent += 1
            step.request = fields["request"]
            self.done.discard(fields["request"])

    def _net_irecv(self, fields):
        self.within[self.call.thread] = []

    def _net_ireceived(self, fields):
        self.within.pop(self.call.thread)
        # No callback is asked for a receive; the step that was begun last on this thread is its.
        step = self.posted.get(self.call.thread)
        self.require(step is not None and step.open and step.parent.fields["send"] == "0", "irecv of no open step")
        self._says(step.task(), "irecv")
        self.counts["irecv"] += 1

    def _net_done(self, fields):
        self.done.add(fields["request"])

    # Events.

    def _profiler_start(self, fields):
        parent = self.events.get(fields["parent"])
        self.require((fields["parent"] == "0") == (parent is None), "the parent was never begun")
        event = self.events[fields["event"]] = Event(self.call, parent)
        getattr(self, f"_start_{event.type}", lambda event: None)(event)
        # An operation begins when the progress thread comes to it: before or after its task was stopped.
        state = "" if parent is None or event.type == "ProxyOp" else ", open" if parent.open else ", stopped"
        self.seen(f"{self._kind(event)} under {parent.type + state if parent else 'nothing'}")
        self.counts[event.type] += 1

    @staticmethod
    def _kind(event):
        operation = event.ancestor("ProxyOp")
        if operation is None or event.type == "NetPlugin":
            return event.type
        return f"{event.type} of a {'send' if operation.fields['send'] == '1' else 'receive'}"

    def _start_Coll(self, event):
        key = (event.context, event.fields["func"])
        self.require(int(event.fields["seq"]) == self.numbers[key],
                     f"{key[1]} has number {event.fields['seq']}, not {self.numbers[key]}")
        self.numbers[key] += 1
        group = self.events.get(event.fields["group"])
        self.require(group is not None and group.type == "Group" and group.open, "a collective outside a group")
        self.require(event.parent is None or event.parent.fields["func"] == event.fields["func"], "another API's task")

    def _start_ProxyOp(self, event):
        self.require(event.parent is not None and event.parent.type in ("Coll", "P2p"), "an operation of no task")
        self.require(event.fields["own"] == "1", "an operation of another process")

    def _start_ProxyStep(self, event):
        operation = event.parent
        self.require(operation is not None and operation.type == "ProxyOp" and operation.open, "a step of no operation")
        step, again = int(event.fields["step"]), operation.fields["send"] == "0" and operation.steps - 1
        # A receive that got no request is begun again.
        if again is not False and step == again and self.posted[self.call.thread].parent is operation:
            self.posted[self.call.thread].open = False
            operation.open_steps -= 1
        else:
            self.require(step == operation.steps, f"step {step} of {operation.shown()} after {operation.steps - 1}")
            operation.steps += 1
        operation.open_steps += 1
        self.require(operation.open_steps <= STEPS, f"{operation.open_steps} steps of {operation.shown()} at once")
        self.posted[self.call.thread] = event

    def _start_NetPlugin(self, event):
        self.require(self.call.thread in self.within, "a NetPlugin event outside isend and irecv")
        self.within[self.call.thread].append(event)
        event.open = False  # ours keeps none

    def _event(self, fields):
        self.require(fields["event"] in self.events, f"event {fields['event']} was never begun")
        return self.events[fields["event"]]

    def _profiler_record(self, fields):
        event = self._event(fields)
        self.require(event.open, f"a state of {event.shown()} that was stopped")
        if event.states[-1:] != [fields["state"]]:
            event.states.append(fields["state"])

    def _profiler_stop(self, fields):
        event = self._event(fields)
        if event.type == "NetPlugin":
            return
        self.require(event.open, f"{event.shown()} is stopped twice")
        event.open = False
        self.seen(f"{self._kind(event)} stopped after states {' '.join(event.states) or 'none'}")
        if event.type == "ProxyStep":
            event.parent.open_steps -= 1
            self.require(event.request is None or event.request in self.done,
                         f"{event.shown()} is stopped before its request is done")
        if event.type == "ProxyOp":
            self.require(event.open_steps == 0 and event.steps == int(event.fields["steps"]),
                         f"{event.shown()} is stopped after {event.steps} steps, {event.open_steps} of them open")
            self.require(event.fields["send"] == "0" or event.sent == event.steps, f"{event.shown()} did not send all")


def open_choices(question, when):
    """What a question's table, `before` or `after` our tuner, leaves to choose: (cost, algorithm, protocol), cheapest first."""
    width = int(question["protocols"])
    costs = enumerate(float(cost) for cost in question[when].split(","))
    return sorted((cost, ALGORITHMS[at // width], PROTOCOLS[at % width]) for at, cost in costs if cost >= 0)


def questions(calls):
    return [call.fields for call in calls if (call.table, call.name) == ("tuner", "getCollInfo")]


def wrong_choice(calls):
    """(nothing or what is wrong, how often the masks changed NCCL's choice), of single collectives: each one's algorithm
    and protocol are what the tuner left cheapest, and never LL128."""
    asked = questions(calls)
    chosen = [call.fields for call in calls if call.name == "start" and call.fields["type"] == "Coll"]
    if not asked or len(asked) != len(chosen):
        return f"{len(asked)} questions of {len(chosen)} collectives", 0
    changed = 0
    for question, choice in zip(asked, chosen):
        before, after = open_choices(question, "before"), open_choices(question, "after")
        if any(protocol == "LL128" for _, _, protocol in after):
            return f"LL128 is left to choose: {question}", 0
        if (choice["algo"], choice["proto"]) != after[0][1:]:
            return f"NCCL chose {choice['algo']} with {choice['proto']}, not {after[0]} of {question}", 0
        changed += before[0] != after[0]
    return "", changed
