/* A driver whose symbols have versions, and a program that is linked with it. */
#include <stdio.h>

#ifdef PROGRAM
int hipRuntimeGetVersion(int *version);

int main(void)
{
    int version;
    if (hipRuntimeGetVersion(&version) != 0)
        return 1;
    printf("%d\n", version);
    return 0;
}
#else
int hipRuntimeGetVersion(int *version);
int hipRuntimeGetVersion(int *version)
{
    *version = 7;
    return 0;
}
#endif
