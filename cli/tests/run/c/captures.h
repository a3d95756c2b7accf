/* Captures of streams: parts of the program for the tests of `cachette run`. */
#ifndef CAPTURES_H
#define CAPTURES_H

/* Memory of a graph is its own until the graph is gone. */
static void captures(void)
{
    handle stream = new_stream(), graph = NULL, ready = NULL;
    address warm = new_memory(BYTES, stream);
    CHECK(driver.release_on(warm, stream) == SUCCESS);
    CHECK(driver.begin_capture(stream, 2) == SUCCESS);
    address captured = new_memory(BYTES, stream);
    CHECK(captured != warm);
    CHECK(driver.fill(captured, 7, BYTES, stream) == SUCCESS);
    CHECK(driver.release_on(captured, stream) == SUCCESS);
    CHECK(driver.end_capture(stream, &graph) == SUCCESS);
    CHECK(driver.make_ready(&ready, graph, 0) == SUCCESS);
    CHECK(driver.destroy_graph(graph) == SUCCESS);
    unsigned with_graph = behind();
    for (int i = 0; i < 3; i++) {
        address outside = new_memory(BYTES, stream);
        CHECK(outside == warm);
        CHECK(driver.fill(outside, 1, BYTES, stream) == SUCCESS);
        CHECK(driver.launch(ready, stream) == SUCCESS);
        check_contents(outside, BYTES, 1, stream);
        check_contents(captured, BYTES, 7, stream);
        CHECK(driver.release_on(outside, stream) == SUCCESS);
    }
    CHECK(driver.destroy_ready(ready) == SUCCESS);
    /* Nothing waits for the device in stream order; a free does. */
    CHECK(driver.release_on(new_memory(BYTES, stream), stream) == SUCCESS);
    CHECK(behind() == with_graph);
    CHECK(driver.release(new_memory(BYTES, stream)) == SUCCESS);
    /* Mapped memory is not counted. */
    CHECK(with_graph == 0 || behind() == with_graph - 1);
}

/* Memory of graphs that are gone serves the next ones. */
static void many_captures(void)
{
    handle stream = new_stream(), graph = NULL, ready = NULL;
    for (int i = 0; i < 3 * MANY; i++) {
        CHECK(driver.begin_capture(stream, 2) == SUCCESS);
        address memory = new_memory(BYTES, stream);
        CHECK(driver.fill(memory, 1, BYTES, stream) == SUCCESS && driver.release_on(memory, stream) == SUCCESS);
        CHECK(driver.end_capture(stream, &graph) == SUCCESS && driver.make_ready(&ready, graph, 0) == SUCCESS);
        CHECK(driver.launch(ready, stream) == SUCCESS && driver.wait(stream) == SUCCESS);
        CHECK(driver.destroy_ready(ready) == SUCCESS && driver.destroy_graph(graph) == SUCCESS);
        CHECK(behind() <= 1);
    }
    /* Each stream has a graph of its own, so all memory but little is theirs. They are gone when it is needed. */
    for (int i = 0; i < MANY; i++) {
        handle other = new_stream();
        CHECK(driver.begin_capture(other, 2) == SUCCESS);
        CHECK(driver.release_on(new_memory(BYTES, other), other) == SUCCESS);
        CHECK(driver.end_capture(other, &graph) == SUCCESS && driver.destroy_graph(graph) == SUCCESS);
    }
    CHECK(driver.begin_capture(stream, 2) == SUCCESS);
    CHECK(driver.release_on(new_memory(200 << 20, stream), stream) == SUCCESS);
    CHECK(driver.end_capture(stream, &graph) == SUCCESS && driver.destroy_graph(graph) == SUCCESS);
    CHECK(driver.release_on(new_memory(200 << 20, stream), stream) == SUCCESS);
}

/* A stream that is destroyed while it is captured, or with a broken capture, leaves nothing behind. */
static void abandoned_captures(void)
{
    handle stream = new_stream(), graph = NULL;
    CHECK(driver.release_on(new_memory(BYTES, stream), stream) == SUCCESS);
    for (int i = 0; i < 3 * MANY; i++) {
        handle captured = new_stream();
        CHECK(driver.begin_capture(captured, 2) == SUCCESS);
        CHECK(driver.release_on(new_memory(BYTES, captured), captured) == SUCCESS);
        if (i % 3 > 0)
            CHECK(driver.wait(captured) != SUCCESS);
        if (i % 3 > 1)
            CHECK(driver.end_capture(captured, &graph) != SUCCESS);
        CHECK(driver.destroy_stream(captured) == SUCCESS);
        /* It can be had again, and has no capture. */
        handle again = new_stream();
        CHECK(again == captured);
        CHECK(driver.release_on(new_memory(BYTES, again), again) == SUCCESS && driver.wait(again) == SUCCESS);
        CHECK(driver.destroy_stream(again) == SUCCESS);
        CHECK(behind() <= 4);
    }
    CHECK(driver.release_on(new_memory(200 << 20, stream), stream) == SUCCESS);
}

#ifdef HIP
/* A stream is destroyed in the capture of another one, which goes on if both were joined. */
static void joined_captures(void)
{
    for (int is_joined = 0; is_joined < 2; is_joined++) {
        handle stream = new_stream(), other = new_stream(), event, graph = NULL;
        CHECK(driver.begin_capture(other, 2) == SUCCESS && driver.end_capture(other, &graph) == SUCCESS);
        CHECK(driver.begin_capture(stream, 2) == SUCCESS && driver.create_event(&event, 2) == SUCCESS);
        CHECK(driver.record(event, stream) == SUCCESS && driver.wait_for(other, event, 0) == SUCCESS);
        address memory = new_memory(BYTES, other);
        CHECK(driver.fill(memory, 1, BYTES, other) == SUCCESS && driver.release_on(memory, other) == SUCCESS);
        if (is_joined) {
            CHECK(driver.record(event, other) == SUCCESS && driver.wait_for(stream, event, 0) == SUCCESS);
            CHECK(driver.destroy_stream(other) == SUCCESS);
        }
        CHECK(driver.end_capture(stream, &graph) == (is_joined ? SUCCESS : UNJOINED));
        CHECK(driver.destroy_stream(stream) == SUCCESS);
        /* The capture that was left on it is over. */
        handle again = new_stream();
        CHECK(is_joined || again == stream);
        CHECK(driver.release_on(new_memory(BYTES, again), again) == SUCCESS && driver.wait(again) == SUCCESS);
    }
}
#endif

/* An end that the driver refuses leaves the capture and its memory as they are. */
static void refused_ends(void)
{
    handle stream = new_stream(), graph = NULL, ready = NULL;
    CHECK(driver.begin_capture(stream, 2) == SUCCESS);
    CHECK(driver.end_capture(stream, NULL) == INVALID_VALUE);
    address captured = new_memory(BYTES, stream);
    CHECK(driver.fill(captured, 7, BYTES, stream) == SUCCESS && driver.release_on(captured, stream) == SUCCESS);
    CHECK(driver.end_capture(stream, &graph) == SUCCESS && driver.make_ready(&ready, graph, 0) == SUCCESS);
    for (int i = 0; i < 3; i++) {
        address outside = new_memory(BYTES, stream);
        CHECK(outside != captured);
        CHECK(driver.fill(outside, 1, BYTES, stream) == SUCCESS && driver.launch(ready, stream) == SUCCESS);
        check_contents(outside, BYTES, 1, stream);
    }
}

#endif
