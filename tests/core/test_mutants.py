"""Is the net tight? The core is broken on purpose, one line at a time, and each breakage must be caught by
the simulation, by the random fire on the pool, or by the one test named for it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from core.test_blocks import test_a_double_free_is_refused_and_changes_nothing as double_free
from core.test_blocks import test_a_freed_tail_is_reused_before_its_head as tail_first
from core.test_bounds import (
    test_a_lower_threshold_counts_for_those_who_wait_already as long_again,
)
from core.test_bounds import (
    test_a_tenant_at_its_share_waits_and_nobody_behind_it_does as share_is_first_come,
)
from core.test_bounds import (
    test_a_tenants_long_prompts_are_bounded_apart_from_those_of_others as own_long_prompts,
)
from core.test_bounds import (
    test_so_many_long_prompts_prefill_at_once_and_short_ones_go_by as goes_by,
)
from core.test_bounds import test_what_a_tenants_requests_share_counts_once as share_counts_once
from core.test_copy_on_write import (
    test_a_fork_whose_parent_ended_copies_what_can_be_found_of_it as orphan_fork,
)
from core.test_copy_on_write import test_a_victims_copy_leaves_the_plan_with_it as victims_copy
from core.test_copy_on_write import test_many_forks_leave_the_original_to_the_last as many_forks
from core.test_copy_on_write import test_the_longest_of_several_parts_is_taken as longest_part
from core.test_copy_on_write import test_where_there_is_no_place_a_fork_waits_like_any_other as fork_waits
from core.test_deadlines import (
    test_the_deadlines_of_those_that_ended_do_not_pile_up as deadlines_bounded,
)
from core.test_deadlines import (
    test_who_comes_back_under_the_same_id_is_judged_by_its_own_deadline as own_deadline,
)
from core.test_fairness import (
    test_the_rows_go_on_behind_the_barred_as_without_them as rows_in_turn,
)
from core.test_fairness import (
    test_who_passes_does_not_move_the_line_for_newcomers as passing_moves_nothing,
)
from core.test_preemption import (
    test_a_victim_already_planned_leaves_the_plan_and_its_token_goes_to_a_prefill as refund_planned,
)
from core.test_preemption import (
    test_a_victim_not_yet_planned_gives_back_the_token_set_aside_for_it as refund_set_aside,
)
from core.test_preemption import test_of_two_that_came_at_the_same_moment_the_later_in_the_batch_goes as ties
from core.test_prefix import test_a_hash_collision_is_no_hit as collision
from core.test_prefix import test_blocks_that_others_hold_already_cost_the_mark_nothing as held_hit_is_free
from core.test_prefix import (
    test_free_blocks_are_reused_before_cached_ones_and_tails_before_heads as lru_tail_first,
)
from core.test_prefix import test_the_preempted_find_again_what_they_computed as rehits_apart
from core.test_prefix import test_what_was_let_go_first_is_reused_first_and_a_hit_makes_it_new as lru_order
from core.test_scheduler import test_abort_while_the_step_is_being_executed_drops_its_token as abort_in_flight
from core.test_swap import (
    test_a_swapped_request_that_is_handed_back_leaves_nothing_on_the_host as swapped_handed_back,
)
from core.test_swap import (
    test_a_swapped_sequence_goes_on_where_it_was_and_computes_nothing_twice as swap_goes_on,
)
from core.test_swap import test_the_cheaper_way_is_taken as cheaper_way
from core.test_swap import test_what_the_prefix_cache_still_has_is_not_moved_in as cached_not_moved
from core.test_tiers import test_a_batch_request_waits_no_longer_than_its_age as ages
from core.test_tiers import (
    test_batch_leaves_in_the_step_in_which_interactive_needs_the_room_and_comes_back as yields_and_admits,
)
from core.test_tiers import test_batch_stays_where_leaving_would_not_help as yields_in_vain
from core.test_tiers import test_blocks_that_batch_shares_with_others_are_not_room as shared_is_no_room
from core.test_tiers import (
    test_who_fills_the_pool_is_not_preempted_since_it_could_not_come_back as cannot_come_back,
)
from core.test_tiers import test_within_a_tier_the_higher_priority_is_admitted_first as priority_order
from simulation.core_modules import REAL, Core, mutated
from simulation.simulate import Simulation

SEEDS = (55, 23, 58, 2, 39, 13, 7, 10, 21, 12, 5, 1, 3)
STEPS = 300


@dataclass(frozen=True)
class Mutant:
    name: str
    module: str
    old: str
    new: str
    #: What catches it, where that is not the simulation.
    test: Callable[[Core], None] | None = None


def fire_at_pool(core: Core) -> None:
    """Random tables taken, shared and given back; in the end all must be there again."""
    draw = random.Random(5)
    pool = core.BlockPool(9, 4)
    tables: list[list[int]] = []
    for _ in range(400):
        if tables and draw.random() < 0.5:
            pool.release(tables.pop(draw.randrange(len(tables))))
        elif tables and draw.random() < 0.5:
            tables.append(draw.choice(tables)[:])
            pool.share(tables[-1])
        elif (table := pool.allocate(draw.randint(0, 4))) is not None:
            tables.append(table)
        held = {block for table in tables for block in table}
        assert [count > 0 for count in pool.ref_counts] == [block in held for block in range(9)]
        assert (pool.used, pool.free) == (len(held), 9 - len(held))
        assert held.isdisjoint(pool.free_list)


def negative_count(core: Core) -> None:
    with pytest.raises(core.PoolError):
        core.BlockPool(4, 4).allocate(-1)


def copy_of_a_victim(core: Core) -> None:
    victims_copy(core, host_blocks=0)


def ages_in_time(core: Core) -> None:
    ages(core, 20)


def fork_waits_for_another_tenant(core: Core) -> None:
    fork_waits(core, "salt")


def cheaper_recompute(core: Core) -> None:
    cheaper_way(core, 4.1, "recompute")


def swapped_before_copy(core: Core) -> None:
    victims_copy(core, host_blocks=8)


def fork_waits_for_the_mark(core: Core) -> None:
    fork_waits(core, "mark")


MUTANTS = [
    Mutant("skip a free", "blocks", "self.free_list += [block for", "_ = [block for", fire_at_pool),
    Mutant(
        "free while shared",
        "blocks",
        "if self.ref_counts[block] == 0:\n                let_go",
        "if True:\n                let_go",
        fire_at_pool,
    ),
    Mutant("share counts nothing", "blocks", "self.ref_counts[block] += 1", "pass", fire_at_pool),
    Mutant("free without counting", "blocks", "self.used -= len(let_go)", "pass", fire_at_pool),
    Mutant(
        "accept a double free", "blocks", "if self.ref_counts[block] < 1 and", "if False and", double_free
    ),
    Mutant("accept a negative count", "blocks", "if count < 0:", "if count < -1:", negative_count),
    Mutant("give one too many", "blocks", "if count > self.available:", "if count > self.available + 1:"),
    Mutant("round blocks down", "blocks", "-(-tokens // self.block_size)", "tokens // self.block_size"),
    Mutant("heads before tails", "blocks", "self.free_list.pop() if", "self.free_list.pop(0) if", tail_first),
    Mutant(
        "admit past the mark", "admission", "self._pool.used + needs > round_", "self._pool.used > round_"
    ),
    Mutant("the mark holds up an empty batch", "admission", "if round_.running and self", "if self"),
    Mutant(
        "no room to grow",
        "admission",
        "blocks_for(request.total_tokens + 1)",
        "blocks_for(request.total_tokens)",
    ),
    Mutant("pass without bound", "admission", "head.passed += 1", "head.passed += 0"),
    Mutant(
        "one slot too many",
        "admission",
        "self.running >= self.limits.max_running",
        "self.running > self.limits.max_running",
    ),
    Mutant("admission costs no budget", "admission", "round_.tokens -= count", "pass"),
    Mutant("batch overtakes interactive", "admission", "is not None or tier in self._heads", "is not None"),
    Mutant("stop at a blocked head", "admission", "head = self._heads[tier] = request", "return"),
    Mutant("wrong reason", "admission", 'self._gate = "kv"', 'self._gate = "slots"'),
    Mutant(
        "refund of a planned victim forgotten",
        "batch_plan",
        "self.spare += chunk.count",
        "pass",
        refund_planned,
    ),
    Mutant(
        "refund of a set-aside token forgotten",
        "batch_plan",
        "self.spare += 1  # set",
        "pass  # set",
        refund_set_aside,
    ),
    Mutant(
        "the victim stays in the plan",
        "batch_plan",
        "self.chunks.pop(victim.id, None)",
        "self.chunks.get(victim.id)",
    ),
    Mutant(
        "decodes not set aside",
        "batch_plan",
        "self.spare -= len(running) - len(prefilling)",
        "pass",
    ),
    Mutant("admit after a preemption", "scheduler", "if len(plan.preempted) > plan.yielded:", "if False:"),
    Mutant("preempt the most important", "batch", "return max(\n", "return min(\n"),
    Mutant(
        "of equals the earlier",
        "batch",
        "reversed(requests),",
        "requests,",
        ties,
    ),
    Mutant("priority upside down", "batch", "-request.priority", "request.priority"),
    Mutant("preempted to the back", "batch", "push_first(victim)", "push(victim)"),
    Mutant("KV kept after preemption", "batch", "victim.computed_tokens = victim.cached_tokens = 0", "pass"),
    Mutant("blocks kept after preemption", "batch", "victim.block_table = []", "pass"),
    Mutant(
        "sole sequence preempts itself",
        "batch_plan",
        "if not candidates:",
        "if False:",
    ),
    Mutant("blocks kept at the end", "batch", "return self.pool.release(request.block_table)", "return 0"),
    Mutant(
        "one token too many",
        "scheduler",
        "len(request.output) >= request.max",
        "len(request.output) > request.max",
    ),
    Mutant("stop tokens ignored", "scheduler", "if token in request.stop_token_ids:", "if False:"),
    Mutant(
        "commit to the aborted",
        "scheduler",
        "running.get(request.id) is not request",
        "False",
        abort_in_flight,
    ),
    Mutant("duplicates taken", "scheduler", "if request.id in self._live:", "if False:"),
    Mutant("queue without bound", "refusal", "len(waiting) >= limits.max_waiting", "False"),
    Mutant(
        "closing forgets to let go",
        "scheduler",
        "del self._live[request.id]\n        return handed_back",
        "return handed_back",
    ),
    # The prefix cache
    Mutant("forget a hash on evict", "prefix", "del self.blocks[content.hash]", "pass"),
    Mutant("evict without telling", "blocks", "self._evicted.append(block)", "pass"),
    Mutant("cached before free", "blocks", "if self.free_list else", "if not self.cached_blocks else"),
    Mutant("heads evicted before tails", "blocks", "in reversed(let_go)", "in let_go", lru_tail_first),
    Mutant("the latest let go is evicted", "blocks", "popitem(last=False)", "popitem(last=True)", lru_order),
    Mutant("a hit does not make it new", "blocks", "del self.cached_blocks[block]", "pass"),
    Mutant("a hit is not counted as used", "blocks", "self.used += 1", "pass"),
    Mutant(
        "a hit without a holder costs nothing", "admission", "fresh + self._pool.idle(hit.blocks)", "fresh"
    ),
    Mutant(
        "a held hit costs its blocks",
        "admission",
        "fresh + self._pool.idle(hit.blocks)",
        "fresh + len(hit.blocks)",
        held_hit_is_free,
    ),
    Mutant(
        "the whole prompt hits",
        "prefix",
        "(request.total_tokens - 1) // size",
        "request.total_tokens // size",
    ),
    Mutant(
        "tokens are not compared", "prefix", "content.tokens != request.tokens(", "False and (", collision
    ),
    Mutant("the salt is forgotten", "prefix", "first_hash(request.cache_salt)", "first_hash('')"),
    Mutant("the beginning is forgotten", "prefix", "chain[-1], request", "chain[0], request"),
    Mutant(
        "found before it is computed",
        "admission",
        "request.passed = 0",
        "self._pool.index.add(request, 0, request.total_tokens // self._pool.block_size)",
    ),
    Mutant("the second of two equals takes over", "prefix", "hash_ in self.blocks or block", "block"),
    Mutant(
        "computed from the start after a hit", "scheduler", "start = request.computed_tokens", "start = 0"
    ),
    Mutant(
        "lookups of the resumed count as hits",
        "scheduler",
        "        if resumed:\n",
        "        if False:\n",
        rehits_apart,
    ),
    # Copy-on-write
    Mutant("write where others read", "batch_plan", "or batch.must_copy(request)", ""),
    Mutant("write to what is shared", "blocks", "self.ref_counts[block] == 1 and block", "block", many_forks),
    Mutant("write to what can be found", "blocks", "== 1 and block not in self.index", "== 1", orphan_fork),
    Mutant("copied and still held", "batch", "self.pool.release([shared])", "pass"),
    Mutant("replaced and not copied", "batch", "plan.copies.append((shared, block))", "pass"),
    Mutant("copied the wrong way", "batch", "append((shared, block))", "append((block, shared))"),
    Mutant("a victim's copy stays", "batch", "if copy[1] not in lost", "if True", copy_of_a_victim),
    Mutant("part of a block not copied", "scheduler", "plan.copies += round_.copies", "pass"),
    Mutant(
        "part of a block one token too long",
        "prefix",
        "request.total_tokens - 1 - start",
        "request.total_tokens - start",
    ),
    Mutant(
        "the first part instead of the longest",
        "prefix",
        "if alike > best[1]:",
        "if not best[1] and alike:",
        longest_part,
    ),
    Mutant(
        "part of a block of another beginning",
        "prefix",
        "request.hash_chain[number], {}",
        "next(iter(self.behind), b''), {}",
    ),
    Mutant(
        "forked with other tokens",
        "scheduler",
        "parent.tokens(0, common) != child.tokens(0, common)",
        "False",
    ),
    Mutant(
        "forked to another tenant",
        "scheduler",
        "parent.cache_salt != child.cache_salt",
        "False",
        fork_waits_for_another_tenant,
    ),
    Mutant(
        "forked past the mark",
        "admission",
        "self._pool.used + fresh <= limits.mark(request.lane)",
        "True",
        fork_waits_for_the_mark,
    ),
    Mutant(
        "a fork computes nothing",
        "scheduler",
        "min(parent.computed_tokens, child.total_tokens - 1)",
        "min(parent.computed_tokens, child.total_tokens)",
    ),
    # Swap
    Mutant(
        "host blocks kept at the end", "scheduler", "self.host.forget(request)\n        return 0", "return 0"
    ),
    Mutant(
        "host blocks kept by the handed back",
        "scheduler",
        "self.host.forget(request)\n            del",
        "del",
        swapped_handed_back,
    ),
    Mutant("host blocks kept after the way back", "swap", "        self.forget(request)\n", ""),
    Mutant("swap without room", "swap", "<= len(self.free_list)", ""),
    Mutant("swap where recompute is cheaper", "swap", "* self._cost.block_s <", "* 0 <", cheaper_recompute),
    Mutant("recompute where swap is forced", "swap", 'self.choice == "swap" or', "", swap_goes_on),
    Mutant(
        "moved in what is there already", "swap", "table[first:], strict", "table, strict", cached_not_moved
    ),
    Mutant("moved out and not told", "batch", "plan.swap_out += ", "_ = "),
    Mutant("moved in and not told", "scheduler", "plan.swap_in += round_.swap_in", "pass"),
    Mutant(
        "moved out a token too few",
        "swap",
        "= victim.computed_tokens",
        "= victim.computed_tokens - 1",
        swap_goes_on,
    ),
    Mutant(
        "moved out before its copy",
        "batch",
        "swap = len(copies) == len(plan.copies)",
        "swap = True",
        swapped_before_copy,
    ),
    Mutant(
        "moved in is never found",
        "admission",
        "request.indexed_blocks = blocks",
        "request.indexed_blocks = 10**6",
    ),
    Mutant("queue without bound in tokens", "refusal", "tokens > limits.max_waiting_tokens", "False"),
    Mutant("tokens of who left the queue", "queues", "self.tokens -= request.total_tokens", "pass"),
    # Tenants, long prompts
    Mutant("in the order of arrival alone", "line", "request.account.served += tokens", "pass"),
    Mutant("what is generated is free", "scheduler", "request.account.served += 1", "pass"),
    Mutant("prompts found in the cache are charged", "queues", "- request.computed_tokens, in", ", in"),
    Mutant(
        "the preempted pay twice", "queues", "if request.preemptions == 0 and not request.output:", "if True:"
    ),
    Mutant("absence is credit", "line", "if self._fair and not account.waiting:", "if False:"),
    Mutant(
        "who passes moves the line",
        "admission",
        "in_turn=request not in round_.passed",
        "in_turn=True",
        passing_moves_nothing,
    ),
    Mutant(
        "long prompts take all of the budget",
        "batch_plan",
        "count = min(count, for_long)",
        "pass",
        goes_by,
    ),
    Mutant(
        "a clock of its own for deadlines",
        "deadlines",
        "request.deadline_s, self._serial",
        "request.deadline_s + 1, self._serial",
    ),
    Mutant("no turns within a step", "line", "account.served) + tokens", "account.served)"),
    Mutant(
        "a new first of a tenant is not seen",
        "line",
        "            return True\n        later",
        "            return False\n        later",
    ),
    Mutant("a tenant's share ignored", "barriers", "if share is None:", "if True:"),
    Mutant("a tenant alone waits for ever", "barriers", "if not tables or sum", "if tables and sum"),
    Mutant(
        "shared blocks count twice",
        "barriers",
        "if len(set(hit.blocks).union(*tables)) + fresh <= blocks:",
        "if False:",
        share_counts_once,
    ),
    Mutant(
        "the barred hold up others",
        "admission",
        "head is None and not barriers.passes_over(request):",
        "head is None:",
    ),
    Mutant(
        "a tenant's smaller requests pass its first",
        "barriers",
        "self.tenants.add(request.tenant)",
        "pass",
        share_is_first_come,
    ),
    Mutant(
        "one long prompt too many",
        "barriers",
        "if prefills.total() < self._limits",
        "if prefills.total() <= self._limits",
    ),
    Mutant(
        "long prompts of a tenant unbounded",
        "barriers",
        "if most is not None and",
        "if False and most is not None and",
        own_long_prompts,
    ),
    Mutant(
        "those admitted in the step do not count", "barriers", "        self._running.append(request)\n", ""
    ),
    Mutant(
        "the cached are long",
        "admission",
        "return request.total_tokens - max(known, request.host_tokens)",
        "return request.total_tokens",
    ),
    Mutant(
        "long for ever", "barriers", "if other.long_prefill and other.is_prefilling", "if other.long_prefill"
    ),
    Mutant(
        "long by the threshold of before",
        "queues",
        "if self.may_be_long(request) != stream.long:",
        "if False:",
        long_again,
    ),
    Mutant("what short prompts leave is lost", "scheduler", "batch_plan.top_up(spare)", "pass"),
    Mutant(
        "topped up past the prompt", "batch_plan", "more = min(missing - chunk.count, spare)", "more = spare"
    ),
    Mutant(
        "the wrong rows",
        "admission",
        "self._waiting.order(tier, _Seen(self))",
        "self._waiting.order(tier)",
        rows_in_turn,
    ),
    # Deadlines
    Mutant("deadlines ignored", "scheduler", "in self._deadlines.take_passed(now_s)", "in []"),
    Mutant("ended before the deadline", "deadlines", "[0][0] <= now_s", "[0][0] <= now_s + 1"),
    Mutant("ended after the deadline", "deadlines", "[0][0] <= now_s", "[0][0] < now_s"),
    Mutant(
        "the deadline of an earlier one of the id",
        "deadlines",
        "self._live.get(request.id) is request",
        "request.id in self._live",
        own_deadline,
    ),
    Mutant(
        "deadlines of the ended pile up",
        "deadlines",
        "if len(self._entries) > MOST_ENDED",
        "if False and MOST_ENDED",
        deadlines_bounded,
    ),
    # Tiers
    Mutant("batch never yields", "batch_plan", "            left += 1\n", "", yields_and_admits),
    Mutant(
        "batch yields in vain",
        "batch_plan",
        "if not batch or not admission",
        "if not batch or False and not admission",
        yields_in_vain,
    ),
    Mutant(
        "all of batch yields",
        "batch_plan",
        "while batch and not admission.fits(head, limits, len(running)):",
        "while batch:",
        yields_and_admits,
    ),
    Mutant(
        "yields count what others hold",
        "admission",
        "if self._pool.ref_counts[block] == count",
        "",
        shared_is_no_room,
    ),
    Mutant(
        "preempt who cannot come back",
        "batch",
        "if self.pool.blocks_for(request.total_tokens + 1) <= self.pool.total",
        "",
        cannot_come_back,
    ),
    Mutant("batch never ages", "scheduler", "oldest.aged = True", "pass"),
    Mutant(
        "batch ages late",
        "scheduler",
        "oldest.queued_step > self",
        "oldest.queued_step > 40 + self",
        ages_in_time,
    ),
    Mutant(
        "the aged are preempted as batch",
        "batch",
        'request.lane == "batch", -request',
        'request.tier == "batch", -request',
    ),
    Mutant("low priority first", "queues", ", reverse=True", "", priority_order),
    Mutant("half of the limits checked", "limits", "if problems:", "if len(problems) > 1:"),
    Mutant(
        "fresh before preempted",
        "queues",
        "in (self.started, *self.fresh.values())",
        "in (*self.fresh.values(), self.started)",
    ),
]


def caught(core: Core, test: Callable[[Core], None] | None) -> bool:
    """Whether anything at all goes wrong with this core."""
    try:
        if test is not None:
            test(core)
        else:
            for seed in SEEDS:
                Simulation(seed, core).run(STEPS)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever goes wrong, it was noticed
        return True
    return False


@pytest.mark.timeout(30)  # a mutant that never ends is caught, too
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_breakage_is_caught(mutant: Mutant) -> None:
    with mutated(mutant.module, mutant.old, mutant.new) as core:
        assert caught(core, mutant.test)


def test_the_unbroken_core_is_not_accused() -> None:
    assert not caught(REAL, None)
    for test in {mutant.test for mutant in MUTANTS if mutant.test is not None}:
        test(REAL)


def test_an_unchanged_copy_behaves_like_the_real_one() -> None:
    real = Simulation(7)
    real.run(STEPS)
    with mutated("blocks", "self.used = 0", "self.used = 0 ") as core:
        copy = Simulation(7, core)
        copy.run(STEPS)
    assert copy.digest == real.digest
