/* Pools and devices of CUDA: parts of the program for the tests of `cachette run`. */
#ifndef DEVICES_H
#define DEVICES_H

#ifdef CUDA
/* The first fields of CUmemPoolProps, and the rest as zeros. */
struct properties {
    int kind, handle_types, location_kind, location;
    char rest[80];
};

/* Plain pools are served; those that can be exported, or that other devices reach, are the driver's. */
static void driver_pools(void)
{
    handle stream = new_stream(), plain, exported;
    struct properties properties = {1, 0, 1, 0, {0}};
    CHECK(driver.create_pool(&plain, &properties) == SUCCESS);
    properties.handle_types = 1;
    CHECK(driver.create_pool(&exported, &properties) == SUCCESS);
    address memory[4];
    for (int i = 0; i < 3; i++)
        CHECK(driver.allocate_from(&memory[i], BYTES, plain, stream) == SUCCESS);
    CHECK(behind() == 1);
    CHECK(driver.allocate_from(&memory[3], BYTES, exported, stream) == SUCCESS);
    CHECK(behind() == 2);
    for (int i = 0; i < 4; i++)
        CHECK(driver.release_on(memory[i], stream) == SUCCESS);
    CHECK(behind() == 1);
    int own[] = {1, 0, 3}, other[] = {1, 1, 3};
    CHECK(driver.grant(plain, own, 1) == SUCCESS);
    CHECK(driver.allocate_from(&memory[0], BYTES, plain, stream) == SUCCESS && behind() == 1);
    CHECK(driver.grant(plain, other, 1) == SUCCESS);
    CHECK(driver.allocate_from(&memory[1], BYTES, plain, stream) == SUCCESS && behind() == 2);
    CHECK(driver.release_on(memory[0], stream) == SUCCESS && driver.release_on(memory[1], stream) == SUCCESS);
    CHECK(driver.destroy_pool(plain) == SUCCESS && driver.destroy_pool(exported) == SUCCESS);
}

/* Plain requests take memory of the device's current pool, so the driver serves them if that pool is the driver's. */
static void current_pools(void)
{
    handle stream = new_stream(), usual, plain, exported;
    struct properties properties = {1, 0, 1, 0, {0}};
    CHECK(driver.default_pool(&usual, 0) == SUCCESS && driver.create_pool(&plain, &properties) == SUCCESS);
    properties.handle_types = 1;
    CHECK(driver.create_pool(&exported, &properties) == SUCCESS);
    address memory[6];
    memory[0] = new_memory(BYTES, stream);
    CHECK(driver.choose_pool(0, plain) == SUCCESS);
    memory[1] = new_memory(BYTES, stream);
    CHECK(behind() == 1);
    CHECK(driver.choose_pool(0, exported) == SUCCESS);
    memory[2] = new_memory(BYTES, stream);
    CHECK(behind() == 2);
    /* Without its current pool a device has the default one. */
    CHECK(driver.destroy_pool(exported) == SUCCESS);
    int own[] = {1, 0, 3}, other[] = {1, 1, 3};
    CHECK(driver.grant(usual, own, 1) == SUCCESS);
    memory[3] = new_memory(BYTES, stream);
    CHECK(behind() == 2);
    CHECK(driver.grant(usual, other, 1) == SUCCESS);
    memory[4] = new_memory(BYTES, stream);
    CHECK(behind() == 3);
    CHECK(driver.choose_pool(0, plain) == SUCCESS);
    memory[5] = new_memory(BYTES, stream);
    CHECK(behind() == 3);
    for (int i = 0; i < 6; i++)
        CHECK(driver.release_on(memory[i], stream) == SUCCESS);
    CHECK(behind() == 1);
}

/* Memory is of the stream's device, whichever is current. So is that of a capture. */
static void other_devices(void)
{
    handle contexts[2], streams[2], graph = NULL, ready = NULL;
    for (int i = 0; i < 2; i++) {
        CHECK(driver.retain(&contexts[i], i) == SUCCESS && driver.push(contexts[i]) == SUCCESS);
        streams[i] = new_stream();
    }
    CHECK(driver.push(contexts[0]) == SUCCESS);
    address memory = new_memory(BYTES, streams[1]);
    CHECK(driver.begin_capture(streams[1], 2) == SUCCESS);
    CHECK(driver.push(contexts[1]) == SUCCESS);
    CHECK(driver.fill(memory, 3, BYTES, streams[1]) == SUCCESS);
    address captured = new_memory(BYTES, streams[1]);
    CHECK(driver.fill(captured, 7, BYTES, streams[1]) == SUCCESS);
    CHECK(driver.release_on(captured, streams[1]) == SUCCESS);
    CHECK(driver.end_capture(streams[1], &graph) == SUCCESS);
    CHECK(driver.make_ready(&ready, graph, 0) == SUCCESS);
    address outside = new_memory(BYTES, streams[1]);
    CHECK(outside != captured);
    CHECK(driver.launch(ready, streams[1]) == SUCCESS);
    check_contents(memory, BYTES, 3, streams[1]);
    CHECK(driver.release_on(memory, streams[1]) == SUCCESS && driver.release_on(outside, streams[1]) == SUCCESS);
    /* A stream of another device may free it. */
    CHECK(driver.push(contexts[0]) == SUCCESS);
    memory = new_memory(BYTES, streams[0]);
    CHECK(driver.push(contexts[1]) == SUCCESS);
    CHECK(driver.release_on(memory, streams[1]) == SUCCESS);
    CHECK(driver.push(contexts[0]) == SUCCESS);
    CHECK(new_memory(BYTES, streams[0]) == memory);
    CHECK(driver.release_on(memory, NULL) == SUCCESS);
}

/* A reset takes all memory, and the driver serves what comes after it. */
static void resets(void)
{
    handle stream = new_stream(), ended = new_stream();
    address before = new_memory(BYTES, stream), after[2];
    CHECK(behind() == 1);
    CHECK(driver.destroy_stream(ended) == SUCCESS);
    /* A reset that the driver refuses changes nothing. */
    CHECK(driver.reset(7) != SUCCESS);
    CHECK(driver.reset(0) == SUCCESS);
    /* The reset has destroyed the streams too, so none of them is given out again. */
    handle later = new_stream();
    CHECK(later != ended && driver.destroy_stream(later) == SUCCESS && driver.destroy_stream(later) != SUCCESS);
    CHECK(new_stream() != later);
    CHECK(behind() == 0);
    CHECK(driver.release(before) == INVALID_VALUE);
    CHECK(driver.allocate(&after[0], BYTES) == SUCCESS && driver.allocate_on(&after[1], BYTES, stream) == SUCCESS);
    CHECK(behind() == 2);
    CHECK(driver.release(after[0]) == SUCCESS && driver.release_on(after[1], stream) == SUCCESS);
}

/* Memory of a graph that ended before the reset is not freed after it: the driver may have given it to the program. */
static void reset_graphs(void)
{
    handle contexts[2], streams[2], graph = NULL;
    for (int i = 1; i >= 0; i--) {
        CHECK(driver.retain(&contexts[i], i) == SUCCESS && driver.push(contexts[i]) == SUCCESS);
        streams[i] = new_stream();
    }
    CHECK(driver.begin_capture(streams[0], 2) == SUCCESS);
    address captured = new_memory(BYTES, streams[0]), again = 0;
    CHECK(driver.release_on(captured, streams[0]) == SUCCESS);
    CHECK(driver.end_capture(streams[0], &graph) == SUCCESS && driver.destroy_graph(graph) == SUCCESS);
    CHECK(driver.reset(0) == SUCCESS && behind() == 0);
    unsigned given = 0;
    /* Usually one has the same address. */
    while (again != captured && given < 32) {
        CHECK(driver.allocate(&again, 2 << 20) == SUCCESS);
        given++;
    }
    CHECK(driver.push(contexts[1]) == SUCCESS);
    new_memory(BYTES, streams[1]);
    CHECK(behind() == given + 1);
}

#ifdef ASKED
/* A program built for default streams of threads: its own streams are served, that of the thread by the driver. */
static void per_thread(void)
{
    int (*allocate_on)(address *, size_t, handle);
    CHECK(ask("cuMemAllocAsync", (void **)&allocate_on, 12000, 2, NULL) == SUCCESS);
    handle stream = new_stream();
    address memory;
    CHECK(allocate_on(&memory, BYTES, stream) == SUCCESS);
    CHECK(driver.release_on(memory, stream) == SUCCESS);
    unsigned before = behind();
    CHECK(allocate_on(&memory, BYTES, NULL) == SUCCESS && behind() == before + 1);
    handle own = (handle)2;
    CHECK(driver.fill(memory, 3, BYTES, own) == SUCCESS);
    check_contents(memory, BYTES, 3, own);
    CHECK(driver.release_on(memory, own) == SUCCESS && behind() == before);
    /* Memory of another stream, freed on the thread's. */
    memory = new_memory(BYTES, stream);
    CHECK(driver.release_on(memory, own) == SUCCESS);
}
#endif
#endif

#endif
