/* A program that holds memory at two lines. */
#include "driver.h"

__attribute__((noinline)) static void weights(address *memory)
{
    CHECK(driver.allocate(memory, 20 << 20) == SUCCESS);
}

int main(void)
{
    address memory[2];
    start();
    weights(&memory[0]);
    CHECK(driver.allocate(&memory[1], 4 << 20) == SUCCESS);
    puts("kept");
    return 0;
}
